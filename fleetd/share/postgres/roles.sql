-- Creates two roles for a store of fleetd, and a schema for its tables. Run it with psql, connected to
-- the database as a superuser, or as a role that may create roles and owns the database. You can run
-- it again.
--
--   fleetctl migrate --roles | psql postgresql://postgres@db.example.org/fleet
--
-- The owner creates and changes tables (fleetctl migrate). The daemons have the other role. It reads
-- and writes rows, but cannot change, truncate or drop a table. Neither role has a password yet: set
-- one with \password, or use certificates or peer authentication.
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
-- Each daemon has three connections, and sometimes a fourth. 400 suffice for a hundred machines. The
-- server's own limit is max_connections.
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

-- A role that is not a superuser must be a member of the owner to act for it.
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
-- Any connected role can send notifications to the daemons and take the advisory lock of their turns.
REVOKE CONNECT ON DATABASE :"DBNAME" FROM PUBLIC;
-- Both find the tables without naming the schema.
ALTER ROLE :"owner" IN DATABASE :"DBNAME" SET search_path = :"schema";
ALTER ROLE :"daemons" IN DATABASE :"DBNAME" SET search_path = :"schema";

-- Privileges on existing tables, and on those of later versions.
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
