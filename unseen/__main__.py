from unseen.cli.start import run

run()
