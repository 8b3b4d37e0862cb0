-- name: plan_for_whole_tables
-- What an audit reads is large, and the planner does not know it where tables were never analysed: no plan that is quick
-- only for a few rows, room to sort, no compiling. For this transaction alone.
SELECT set_config('enable_nestloop', 'off', true), set_config('plan_cache_mode', 'force_custom_plan', true),
       set_config('jit', 'off', true), set_config('work_mem', '64MB', true)
