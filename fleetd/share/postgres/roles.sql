-- Two roles for a store of fleetd, in a schema of their own. For psql, connected to the database as
-- a superuser, or as a role that may create roles and owns the database. It can be run again.
--
--   fleetctl migrate --roles | psql postgresql://postgres@db.example.org/fleet
--
-- The owner makes and changes tables: fleetctl migrate. The other one is for the daemons: it reads
-- and writes rows, and can neither change nor empty a table. Neither has a password after this:
-- give them theirs with \password, or let certificates or peer stand for them.
--
-- Other names: psql -v owner=… -v daemons=… -v schema=… -v connections=…

\set ON_ERROR_STOP on
\set QUIET on
\if :{?owner}
\else
    \set owner fleet_owner
\endif
\if :{?daemons}
\else
    \set daemons fleet
\endif
\if :{?schema}
\else
    \set schema fleet
\endif
-- Each daemon has three connections, and one more now and then: these are for a hundred machines. How
-- many the server has in all is its max_connections.
\if :{?connections}
\else
    \set connections 400
\endif

BEGIN;

SELECT format('CREATE ROLE %I LOGIN', role)
FROM unnest(ARRAY[:'owner', :'daemons']) AS role
WHERE role NOT IN (SELECT rolname FROM pg_roles)
\gexec
ALTER ROLE :"daemons" CONNECTION LIMIT :connections;

-- Who is no superuser has to belong to the owner to act for it.
SELECT format('GRANT %I TO CURRENT_USER', :'owner')
WHERE NOT pg_has_role(current_user, :'owner', 'USAGE')
\gexec

SELECT format('CREATE SCHEMA %I AUTHORIZATION %I', :'schema', :'owner')
WHERE :'schema' NOT IN (SELECT nspname FROM pg_namespace)
\gexec
ALTER SCHEMA :"schema" OWNER TO :"owner";
REVOKE ALL ON SCHEMA :"schema" FROM PUBLIC;
GRANT USAGE ON SCHEMA :"schema" TO :"daemons";

GRANT CONNECT ON DATABASE :"DBNAME" TO :"owner", :"daemons";
-- Whoever is connected may ring the daemons' bell, and take the lock that they take turns with.
REVOKE CONNECT ON DATABASE :"DBNAME" FROM PUBLIC;
-- Both find the tables without naming the schema.
ALTER ROLE :"owner" IN DATABASE :"DBNAME" SET search_path = :"schema";
ALTER ROLE :"daemons" IN DATABASE :"DBNAME" SET search_path = :"schema";

-- What is there, and what later versions bring.
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA :"schema" TO :"daemons";
GRANT USAGE ON ALL SEQUENCES IN SCHEMA :"schema" TO :"daemons";
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA :"schema" TO :"daemons";
ALTER DEFAULT PRIVILEGES FOR ROLE :"owner" IN SCHEMA :"schema"
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO :"daemons";
ALTER DEFAULT PRIVILEGES FOR ROLE :"owner" IN SCHEMA :"schema"
    GRANT USAGE ON SEQUENCES TO :"daemons";
ALTER DEFAULT PRIVILEGES FOR ROLE :"owner" IN SCHEMA :"schema"
    GRANT EXECUTE ON FUNCTIONS TO :"daemons";

COMMIT;
