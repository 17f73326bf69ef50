"""Who may do what: access rules, the decision by them, what each call needs, and the audit log. The decision has no I/O."""
