"""`treadle approvals`: calls that wait for a person, decided from a terminal."""
