"""The coordinator: the only code that opens sealed totals, adds noise and charges the ledger."""
