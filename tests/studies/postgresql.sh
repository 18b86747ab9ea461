#!/bin/sh
# A PostgreSQL server for one test: postgresql.sh start|stop FOLDER. It listens on a socket in FOLDER
# alone. The server refuses to run as root, so root becomes the user `postgres` first.
set -e
as() { if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi; }
case "$1" in
start)
    mkdir -p "$2/socket"
    [ "$(id -u)" = 0 ] && chown -R postgres "$2"
    as initdb -D "$2/data" -U postgres --auth=trust --no-sync >/dev/null
    as pg_ctl -D "$2/data" -w -t 60 -l "$2/log" \
        -o "-c listen_addresses='' -c unix_socket_directories='$2/socket' -c fsync=off" start >/dev/null
    ;;
stop)
    as pg_ctl -D "$2/data" -m immediate stop >/dev/null
    ;;
esac
