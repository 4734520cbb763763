"""Access control: who a request comes from, and what that identity may do.

A server has one `Access`, chosen by its settings: none but the rule for remote peers
(`access`), ACL 1.0 (`plain`) or ACL 2.0 (`policies`). Its gate asks it about every request.
"""
