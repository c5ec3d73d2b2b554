"""The pages' own scripts as they are sent: without what is for readers, and joined to one file for each page."""
