"""Published studies: whole tables and figures of the sources as one command each, their numbers
beside ours. The engine (`unseen/studies`) knows nothing of them.

    study.py      what a published study is; run, remake
    named/        the studies, one file each: `unseen study published NAME`
    numbers/      the tables of the sources as CSV
    core/comparison.py, page.py, and what several of them measure or draw
"""
