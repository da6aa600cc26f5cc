"""What a target means, one task a file: numpy only, since every bundle carries these files.

To add one: a class as `base.Task` describes it, a line here, its outcomes in
lightning_modules/losses.py and, if it has any, its pictures in callbacks/test_report.py.
"""

TASKS: dict[str, str] = {
    "single_label": "tasks.single_label.SingleLabel",
}
