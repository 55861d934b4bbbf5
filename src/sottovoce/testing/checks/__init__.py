"""A check for each kind of part, which raises `ContractError` with the law that was broken."""
