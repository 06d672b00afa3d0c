"""What is measured, as tables; not part of the installed package."""
