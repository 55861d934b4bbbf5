"""One check a kind of part; each raises `ContractError` with the name of the law that was broken."""
