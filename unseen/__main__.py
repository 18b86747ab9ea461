from unseen.cli.main import run

run()
