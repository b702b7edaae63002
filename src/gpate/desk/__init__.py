"""`gpate desk`: a local page in the browser for the custodian of a data set.

`server` is the web server and its checks of every request, `workspace` the folder and what is in it, `jobs` the commands that pages start,
`app` the pages. The server reads no record: it starts `gpate` commands in processes of their own and shows what they report.
"""
