"""Who may do what: identities, certificates, roles, limits, secrets and the audit, all on the scheduler's side."""
