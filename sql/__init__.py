"""The database: schema, migrations, store, roll-ups, analysts' views. The only home of SQL."""
