-- Binary operators over pairs of types: results and their types, and which do not exist.
--! views
--! list l = 2::int2 | 3 | 4::bigint | 1.5 | 2.5::float4 | 3.5::float8 | '5' | 'b'::text | 'b'::varchar | 'b'::char(2) | 'b'::name | true | '\x62'::bytea | date '2024-01-02' | time '10:00' | timestamp '2024-01-02 10:00' | timestamptz '2024-01-02 10:00+00' | interval '1 hour' | array[1,2] | '{"a":1}'::jsonb | null | 5::oid
--! list op = + | - | * | / | = | < | || | >=
--! list r = 2::int2 | 3 | 4::bigint | 1.5 | 2.5::float4 | 3.5::float8 | '5' | 'b'::text | 'b'::char(2) | true | '\x62'::bytea | date '2024-01-02' | time '10:00' | timestamp '2024-01-02 10:00' | interval '1 hour' | array[1,2] | '{"a":1}'::jsonb | null | 5::oid
--! queries
select {l} {op} {r};
--! list un = - | + | ~ | @ | not | |/
select {un} {l};
--! list fop = % | ^ | & | <<
--! list num = 2::int2 | 3 | 4::bigint | 1.5 | 2.5::float4 | 3.5::float8 | '5' | null | 5::oid
select {num} {fop} {num};
select coalesce({l}, {r});
select case when true then {l} else {r} end;
select nullif({l}, {r});
select {l} in ({r});
select {l} between {r} and {r};
select {l} is distinct from {r};
select array[{l}, {r}];
select {l} union all select {r};
select greatest({l}, {r});
