"""How users organize their threads: sections, projects and attachments, in a separate database.

Unlike the index, nothing else contains these facts: a damaged database is set aside.
"""
