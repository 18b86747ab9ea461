# The search page, or a worker of a study, in a container: docs/serving.md. Every package is compared with its hash;
# `.ci/pin-base` writes the digest of the base.
FROM python:3.11-slim

# pip reads it: torch's CPU build is on an index of its own.
ARG PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
WORKDIR /opt/unseen
COPY pyproject.toml requirements-lock-service.txt README.md LICENSE ./
COPY unseen ./unseen
RUN pip install --no-cache-dir --require-hashes -r requirements-lock-service.txt \
    && pip install --no-cache-dir --no-deps --no-build-isolation . \
    && useradd --uid 1000 --create-home unseen

# The root may be read-only: what is written goes to /data and /tmp.
ENV UNSEEN_CACHE=/tmp/unseen MPLCONFIGDIR=/tmp/matplotlib
USER 1000:1000
WORKDIR /data
EXPOSE 8000
HEALTHCHECK --interval=30s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/health')"]
ENTRYPOINT ["unseen"]
CMD ["serve", "/data/my.index", "--host", "0.0.0.0", "--workers", "2"]
