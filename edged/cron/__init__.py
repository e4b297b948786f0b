"""Jobs on schedules: a command, a tool or a message, once or again and again.

Imported when the first job is there. Knows no tools: what a job does is handed in
as a callable (`scheduler.Fire`), and so is the check of its caller's rights.
"""
