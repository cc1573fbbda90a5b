package functions

import "strings"

// aggregates lists the aggregates and window functions; package exec implements them by ID. Result types are PostgreSQL's:
// sum(int4) is int8, sum(int8) and avg of integers numeric, sum(float4) float4, avg of floats float8.
func aggregates() []entry {
	ids := strings.Fields(`
count(*) count(any)
sum(int2) sum(int4) sum(int8) sum(float4) sum(float8) sum(numeric) sum(interval)
avg(int2) avg(int4) avg(int8) avg(float4) avg(float8) avg(numeric) avg(interval)
min(int2) min(int4) min(int8) min(oid) min(float4) min(float8) min(numeric) min(text) min(bpchar) min(date) min(time) min(timetz)
min(timestamp) min(timestamptz) min(interval) min(anyarray)
max(int2) max(int4) max(int8) max(oid) max(float4) max(float8) max(numeric) max(text) max(bpchar) max(date) max(time) max(timetz)
max(timestamp) max(timestamptz) max(interval) max(anyarray) min(anyenum) max(anyenum)
bool_and(bool) bool_or(bool) every(bool)
string_agg(text,text) string_agg(bytea,bytea) array_agg(anynonarray) array_agg(anyarray)
bit_and(int2) bit_and(int4) bit_and(int8) bit_or(int2) bit_or(int4) bit_or(int8) bit_xor(int2) bit_xor(int4) bit_xor(int8)
json_agg(anyelement) jsonb_agg(anyelement) json_object_agg(any,any) jsonb_object_agg(any,any)
row_number() rank() dense_rank() percent_rank() cume_dist() ntile(int4)
lag(anyelement) lag(anyelement,int4) lag(anycompatible,int4,anycompatible)
lead(anyelement) lead(anyelement,int4) lead(anycompatible,int4,anycompatible)
first_value(anyelement) last_value(anyelement) nth_value(anyelement,int4)
corr(float8,float8) covar_pop(float8,float8) covar_samp(float8,float8)
regr_avgx(float8,float8) regr_avgy(float8,float8) regr_count(float8,float8) regr_intercept(float8,float8) regr_r2(float8,float8)
percentile_cont(float8,float8) percentile_cont(float8,interval) percentile_cont(_float8,float8) percentile_cont(_float8,interval)
percentile_disc(float8,anyelement) percentile_disc(_float8,anyelement) mode(anyelement)
rank(any) dense_rank(any) percent_rank(any) cume_dist(any)
regr_slope(float8,float8) regr_sxx(float8,float8) regr_sxy(float8,float8) regr_syy(float8,float8)`)
	for _, f := range []string{"stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp"} {
		for _, t := range []string{"int2", "int4", "int8", "float4", "float8", "numeric"} {
			ids = append(ids, f+"("+t+")")
		}
	}
	out := make([]entry, 0, len(ids)+3)
	for _, id := range ids {
		out = append(out, entry{id: id, impl: impl{byOperator: true}})
	}
	return append(out, entry{
		id: "approx_count_distinct(any)", sig: "int8 a f i", impl: impl{byOperator: true},
		doc: "number of distinct values that are not NULL; exact",
	}, entry{
		id: "$scalar(anyelement)", sig: "anyelement a f i", impl: impl{byOperator: true},
		doc: "the value of the only row; error 21000 when there are several",
	}, entry{
		id: "$first(anyelement)", sig: "anyelement a f i", impl: impl{byOperator: true},
		doc: "the value of one of the rows",
	})
}
