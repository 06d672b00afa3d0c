"""What the store on PostgreSQL is made of; must not know the rules."""
