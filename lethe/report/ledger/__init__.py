"""What a ledger says of a data set, as tables, a picture and pages. All of it is made of plain data, `Account.to_dict`."""
