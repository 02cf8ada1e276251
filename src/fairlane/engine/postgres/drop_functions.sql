-- Drop all functions of the schema, so that an upgrade may create them with other parameters.
DO $$
DECLARE
  outdated regprocedure;
BEGIN
  FOR outdated IN SELECT p.oid::regprocedure FROM pg_proc AS p WHERE p.pronamespace = 'fairlane'::regnamespace LOOP
    EXECUTE format('DROP FUNCTION %s', outdated);
  END LOOP;
END $$;
