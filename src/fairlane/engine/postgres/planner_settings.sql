-- Planner settings: every verb uses its indexes, even while statistics say that tables are empty, and plans once.
DO $$
DECLARE
  verb regprocedure;
BEGIN
  FOR verb IN
    SELECT p.oid::regprocedure FROM pg_proc AS p
    WHERE p.pronamespace = 'fairlane'::regnamespace
      AND p.proname IN ('check_customer', 'submit', 'submit_one', 'claim', 'settle', 'extend', 'take_over', 'reclaim', 'cancel',
                        'retry', 'purge', 'forget', 'configure', 'count_some', 'tune', 'reset_customer', 'put_record', 'settle_arrivals',
                        'limit_kind', 'prioritize', 'reprioritize')
  LOOP
    EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off '
                   'SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan '
                   'SET lock_timeout = %L', verb, '20s');
  END LOOP;
  -- All lanes, or kinds, and a sort look as cheap as the index that has the order where one row is expected.
  FOR verb IN
    SELECT p.oid::regprocedure FROM pg_proc AS p
    WHERE p.pronamespace = 'fairlane'::regnamespace AND p.proname IN ('claim', 'find_first', 'find_oldest')
  LOOP
    EXECUTE format('ALTER FUNCTION %s SET enable_sort = off', verb);
  END LOOP;
END $$;
