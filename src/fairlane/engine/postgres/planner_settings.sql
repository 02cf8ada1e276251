-- Every verb keeps to its indexes, whatever the planner knows of tables that were empty a minute ago, and plans once.
DO $$
DECLARE
  one regprocedure;
BEGIN
  FOR one IN
    SELECT p.oid::regprocedure FROM pg_proc AS p
    WHERE p.pronamespace = 'fairlane'::regnamespace
      AND p.proname IN ('check_customer', 'submit', 'submit_one', 'claim', 'settle', 'extend', 'reclaim', 'cancel', 'retry',
                        'purge', 'forget',
                        'configure', 'tune', 'reset_customer', 'put_record', 'settle_arrivals')
  LOOP
    EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off '
                   'SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan '
                   'SET lock_timeout = %L', one, '30s');
  END LOOP;
END $$;
