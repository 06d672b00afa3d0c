"""The store on PostgreSQL, which several machines share."""
