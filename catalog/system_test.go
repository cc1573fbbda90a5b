package catalog

import (
	"context"
	"fmt"
	"math/big"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// since15 are the columns of the recorded PostgreSQL 15 that 14 does not have; a relation without a column is new as a whole.
var since15 = map[string]bool{
	"pg_ident_file_mappings": true, "pg_stat_recovery_prefetch": true,
	"pg_stat_subscription_stats": true,
	"pg_database.datlocprovider": true, "pg_database.daticulocale": true, "pg_database.datcollversion": true, "pg_collation.colliculocale": true,
	"pg_index.indnullsnotdistinct": true, "pg_constraint.confdelsetcols": true, "pg_publication_rel.prqual": true, "pg_publication_rel.prattrs": true,
	"pg_publication_tables.attnames": true, "pg_publication_tables.rowfilter": true, "pg_statistic_ext_data.stxdinherit": true,
	"pg_stats_ext.inherited": true, "pg_stats_ext_exprs.inherited": true, "pg_subscription.subtwophasestate": true,
	"pg_subscription.subdisableonerr": true, "pg_subscription.subskiplsn": true, "table_constraints.nulls_distinct": true,
}

// only14 are the columns that 15 has lost, differs14 those that had another type.
var (
	only14    = map[string]bool{"pg_database.datlastsysoid": true}
	differs14 = map[string]string{
		"pg_database.datcollate": "name", "pg_database.datctype": "name", "pg_collation.collcollate": "name", "pg_collation.collctype": "name",
	}
	// substitutes are the types that streamdb does not have.
	substitutes = map[string]string{
		"sql_identifier": "name", "cardinal_number": "int4", "character_data": "varchar", "yes_or_no": "varchar", "time_stamp": "timestamptz",
		"inet": "text", "pg_lsn": "text", "pg_ndistinct": "text", "pg_dependencies": "text", "pg_mcv_list": "text", "anyarray": "text",
		"_pg_statistic": "_text", "cstring": "text",
	}
)

func TestColumnsArePostgreSQLs(t *testing.T) {
	data, err := os.ReadFile("testdata/pg15_columns.tsv")
	require.NoError(t, err)
	want := map[string][]string{}
	oids := map[string]string{}
	for line := range strings.Lines(string(data)) {
		f := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(f) != 6 {
			continue
		}
		rel, col, typ := f[1], f[4], f[5]
		if since15[rel] || since15[rel+"."+col] {
			continue
		}
		if s, ok := differs14[rel+"."+col]; ok {
			typ = s
		}
		if s, ok := substitutes[typ]; ok {
			typ = s
		}
		want[f[0]+"."+rel] = append(want[f[0]+"."+rel], col+" "+typ)
		oids[f[0]+"."+rel] = f[2] + " " + f[3]
	}
	require.Len(t, SystemRelations(), len(want))
	for _, r := range SystemRelations() {
		var got []string
		for _, c := range r.Columns {
			if c.Hidden || only14[r.Name+"."+c.Name] {
				continue
			}
			i, ok := types.InfoOf(c.Type.OID)
			require.True(t, ok)
			got = append(got, c.Name+" "+i.Name)
		}
		if r.Name == "pg_database" { // 15 put the locale names, now texts, behind the columns of fixed length
			require.ElementsMatch(t, want[r.Schema+"."+r.Name], got)
			continue
		}
		require.Equal(t, want[r.Schema+"."+r.Name], got, r.Name)
		require.Equal(t, oids[r.Schema+"."+r.Name], fmt.Sprintf("%d %c", r.OID, r.Kind), r.Name)
	}
	for name, oid := range map[string]uint32{"pg_class": 1259, "pg_attribute": 1249, "pg_proc": 1255, "pg_type": 1247, "pg_namespace": 2615} {
		r, ok := LookupSystem("", name)
		require.True(t, ok)
		require.Equal(t, oid, r.OID)
	}
	_, ok := LookupSystem("", "tables")
	require.False(t, ok, "information_schema is searched only by name")
}

// exampleDB has one relation of each kind.
func exampleDB(t testing.TB) *SystemData {
	c, err := New(nil, nil)
	require.NoError(t, err)
	require.NoError(t, c.Update(func(tx *Tx) error {
		if err := tx.AddNamespace("shop"); err != nil {
			return err
		}
		defer func() { // after the relations: their ids are in other tests
			labels := []EnumLabel{{OID: uint32(tx.NextID()), Label: "sad", Sort: 1}, {OID: uint32(tx.NextID()), Label: "happy", Sort: 2}}
			tx.PutDatabase(Database{Comment: "the one"})
			require.NoError(t, tx.PutEnum(&Enum{OID: uint32(tx.NextID()), Schema: "shop", Name: "mood", Labels: labels, Comment: "how it is"}))
		}()
		add := func(o Object) uint64 {
			o.ID = tx.NextID()
			require.NoError(t, tx.Add(&o))
			return o.ID
		}
		id := add(Object{
			Kind: Table, Schema: "public", Name: "t", Comment: "a table", Key: []int{1, 3}, Constraint: "t_pkey",
			Columns: []Column{
				{Name: "_hidden", Type: types.Int8, Hidden: true},
				{Name: "id", Type: types.Int4, NotNull: true},
				{Name: "a", Type: types.Text, Default: "'x'", Comment: "first"},
				{Name: "Big", Type: types.Type{OID: types.OIDNumeric, Mod: types.NumericTypmod(6, 2)}, NotNull: true},
				{Name: "tags", Type: types.T(types.ArrayOf(types.OIDText))},
				{Name: "g", Type: types.Int4, Generated: "id + 1"},
			},
			Checks: []Check{{Name: "t_id_check", Text: "id > 0"}, {Name: "t_a_check", Text: "(a <> '\"Big\"')"}}, Settings: map[string]string{"on_error": "raise", "parallelism": "2"}, Options: []string{"on_error"},
		})
		src := add(Object{
			Kind: Source, Schema: "shop", Name: "s", Columns: []Column{{Name: "k", Type: types.Int8}},
			Source: &SourceDef{Connector: "kafka", Options: map[string]string{"topic": "x", "properties.sasl.password": "hush"}, Format: "plain", Encode: "json"},
		})
		add(Object{
			Kind: Sequence, Schema: "public", Name: "q", Columns: []Column{{Name: "last_value", Type: types.Int8, NotNull: true}},
			Sequence: &SequenceDef{Type: uint32(types.OIDInt8), Start: 1, Increment: 1, Min: 1, Max: 9, Cache: 1},
		})
		add(Object{Kind: View, Schema: "public", Name: "v", Columns: []Column{{Name: "id", Type: types.Int4}}, Query: "SELECT id FROM t", DependsOn: []uint64{id}})
		add(Object{
			Kind: MaterializedView, Schema: "public", Name: "m", Key: []int{0}, Columns: []Column{{Name: "n", Type: types.Int8}},
			Query: "SELECT count(*) AS n FROM shop.s;", DependsOn: []uint64{src},
		})
		return nil
	}))
	return &SystemData{
		Snap: c.Snapshot(), Registry: functions.Builtins(), User: "ann", Database: "db",
		RowCount: func(uint64) int64 { return 42 }, Size: func(uint64) int64 { return 10000 },
		Settings: func() []Setting { return []Setting{{Name: "work_mem", Value: "4MB", Doc: "memory"}} },
		Cursors:  func() []CursorInfo { return []CursorInfo{{Name: "c", Statement: "DECLARE c CURSOR FOR SELECT 1"}} },
		Prepared: func() []PreparedInfo { return []PreparedInfo{{Name: "p", Statement: "SELECT $1", Params: []int64{25}}} },
		Locks: func() []LockInfo {
			return []LockInfo{{Type: "advisory", Object: 7, Sub: 1, PID: 7, Mode: "ExclusiveLock", Granted: true}}
		},
		Sessions: func() []SessionInfo {
			return []SessionInfo{{PID: 7, User: "ann", Database: "db", State: "idle", Started: 1, ClientAddr: "127.0.0.1", ClientPort: 9}}
		},
		HBARules: func() ([]HBARule, error) {
			return []HBARule{
				{Line: 1, Type: "host", Databases: []string{"all"}, Users: []string{"a", "b"}, Address: "10.0.0.0", Netmask: "255.0.0.0", Method: "cert", Options: []string{"x=y"}},
				{Line: 2, Type: "host", Error: "faulty"},
			}, nil
		},
		ServerVersion: "14.15", ServerVersionNum: 140015,
	}
}

// table returns a relation's rows as column → text, NULL as "∅".
func table(t testing.TB, d *SystemData, schema, name string) []map[string]string {
	rel, ok := LookupSystem(schema, name)
	require.True(t, ok, name)
	cols := make([]int, len(rel.Columns))
	for i := range cols {
		cols[i] = i
	}
	var out []map[string]string
	require.NoError(t, d.Rows(context.Background(), schema, name, cols, func(c *types.Chunk) error {
		require.LessOrEqual(t, c.N, types.MaxChunkRows)
		require.Len(t, c.Cols, len(cols))
		for i, v := range c.Cols {
			require.Equal(t, rel.Columns[i].Type, v.Type)
			require.Equal(t, c.N, v.Len(), "%s.%s", name, rel.Columns[i].Name)
		}
		for r := range c.N {
			row := map[string]string{}
			for i, v := range c.Cols {
				if v.IsNull(r) {
					require.False(t, rel.Columns[i].NotNull, "%s.%s is NULL", name, rel.Columns[i].Name)
					row[rel.Columns[i].Name] = "∅"
					continue
				}
				d := v.Get(r)
				d.Type = v.Type
				row[rel.Columns[i].Name] = string(d.AppendText(nil, nil))
			}
			out = append(out, row)
		}
		return nil
	}), name)
	return out
}

func TestEveryRelationEmitsRows(t *testing.T) {
	d := exampleDB(t)
	filled := 0
	for _, r := range SystemRelations() {
		rows := table(t, d, r.Schema, r.Name)
		if len(rows) > 0 {
			filled++
		}
		if r.Column("oid") < 0 {
			continue
		}
		seen := map[string]bool{}
		for _, row := range rows {
			require.False(t, seen[row["oid"]], "%s has OID %s twice", r.Name, row["oid"])
			seen[row["oid"]] = true
		}
	}
	require.Equal(t, filled, len(producers)-3, "all producers but applicable_roles, pg_db_role_setting and pg_default_acl have rows in this database")
	for key := range producers {
		schema, name, _ := strings.Cut(key, "\x00")
		_, ok := LookupSystem(schema, name)
		require.True(t, ok, "producer of the unknown relation %s.%s", schema, name)
	}
}

func TestProjectionRepeatsAndReordersColumns(t *testing.T) {
	d := exampleDB(t)
	rel, _ := LookupSystem("pg_catalog", "pg_namespace")
	name, oid := rel.Column("nspname"), rel.Column("oid")
	require.NoError(t, d.Rows(context.Background(), "pg_catalog", "pg_namespace", []int{name, oid, name}, func(c *types.Chunk) error {
		require.Len(t, c.Cols, 3)
		require.Equal(t, c.Cols[0].Str, c.Cols[2].Str)
		return nil
	}))
	n := 0
	require.NoError(t, d.Rows(context.Background(), "pg_catalog", "pg_proc", nil, func(c *types.Chunk) error { n += c.N; return nil }))
	require.Greater(t, n, 500)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, d.Rows(ctx, "pg_catalog", "pg_class", []int{0}, func(*types.Chunk) error { return nil }), context.Canceled)
}

func find(t testing.TB, rows []map[string]string, column, value string) map[string]string {
	for _, r := range rows {
		if r[column] == value {
			return r
		}
	}
	require.Failf(t, "no such row", "%s = %s", column, value)
	return nil
}

func TestRowsOfUsersRelations(t *testing.T) {
	d := exampleDB(t)
	class := table(t, d, "pg_catalog", "pg_class")
	tab := find(t, class, "relname", "t")
	require.Equal(t, []string{"r", "5", "t", "2", "42", "2", "{on_error=raise}"},
		[]string{tab["relkind"], tab["relnatts"], tab["relhasindex"], tab["relchecks"], tab["reltuples"], tab["relpages"], tab["reloptions"]})
	for name, kind := range map[string]string{"s": "f", "v": "v", "m": "m", "t_pkey": "i", "pg_class": "r", "pg_tables": "v"} {
		require.Equal(t, kind, find(t, class, "relname", name)["relkind"], name)
	}
	index := find(t, table(t, d, "pg_catalog", "pg_index"), "indrelid", tab["oid"])
	require.Equal(t, "1 3", index["indkey"])
	require.Equal(t, "1978 3125", index["indclass"], "int4_ops numeric_ops")
	cons := table(t, d, "pg_catalog", "pg_constraint")
	require.Equal(t, "{1,3}", find(t, cons, "conname", "t_pkey")["conkey"])
	require.Equal(t, "{1}", find(t, cons, "conname", "t_id_check")["conkey"])
	require.Equal(t, "{2}", find(t, cons, "conname", "t_a_check")["conkey"], "what stands in quotes is no column")
	require.Equal(t, index["indexrelid"], find(t, cons, "contype", "p")["conindid"])
	var names []string
	for _, a := range table(t, d, "pg_catalog", "pg_attribute") {
		if a["attrelid"] == tab["oid"] {
			names = append(names, a["attname"]+":"+a["attnum"]+":"+a["attnotnull"]+":"+a["atthasdef"]+":"+a["attgenerated"])
		}
	}
	require.Equal(t, []string{"id:1:t:f:", "a:2:f:t:", "Big:3:t:f:", "tags:4:f:f:", "g:5:f:t:s"}, names)
	require.Equal(t, "{topic=x,format=plain,encode=json}", strings.Replace(table(t, d, "pg_catalog", "pg_foreign_table")[0]["ftoptions"],
		"properties.sasl.password=********,", "", 1))
	require.Equal(t, "kafka", table(t, d, "pg_catalog", "pg_foreign_server")[0]["srvname"])
	row := find(t, table(t, d, "pg_catalog", "pg_type"), "typname", "t")
	require.Equal(t, tab["reltype"], row["oid"])
	require.Equal(t, tab["oid"], row["typrelid"])
	require.Equal(t, row["typarray"], find(t, table(t, d, "pg_catalog", "pg_type"), "typname", "_t")["oid"])
	col := find(t, table(t, d, "information_schema", "columns"), "column_name", "Big")
	require.Equal(t, []string{"3", "NO", "numeric", "6", "10", "2", "numeric"},
		[]string{col["ordinal_position"], col["is_nullable"], col["data_type"], col["numeric_precision"], col["numeric_precision_radix"], col["numeric_scale"], col["udt_name"]})
	gen := find(t, table(t, d, "information_schema", "columns"), "column_name", "g")
	require.Equal(t, []string{"ALWAYS", "id + 1", "∅"}, []string{gen["is_generated"], gen["generation_expression"], gen["column_default"]})
	require.Equal(t, "((id > 0))", find(t, table(t, d, "information_schema", "check_constraints"), "constraint_name", "t_id_check")["check_clause"])
	require.Equal(t, "FOREIGN", find(t, table(t, d, "information_schema", "tables"), "table_name", "s")["table_type"])
	require.Equal(t, "42", find(t, table(t, d, "pg_catalog", "pg_stat_user_tables"), "relname", "m")["n_live_tup"])
	require.Equal(t, "16383", find(t, table(t, d, "pg_catalog", "pg_stat_activity"), "pid", "7")["usesysid"])
	proc := find(t, table(t, d, "pg_catalog", "pg_proc"), "proname", "array_in")
	require.Equal(t, proc["oid"], find(t, table(t, d, "pg_catalog", "pg_type"), "typname", "_int4")["typinput"])
}

func TestTypesAreComplete(t *testing.T) {
	rows := table(t, exampleDB(t), "pg_catalog", "pg_type")
	for _, i := range types.AllInfos() {
		r := find(t, rows, "oid", fmt.Sprint(i.OID))
		require.Equal(t, []string{i.Name, fmt.Sprint(i.Len), fmt.Sprint(i.Elem), fmt.Sprint(i.Array), string(i.Category), string(i.TypType)},
			[]string{r["typname"], r["typlen"], r["typelem"], r["typarray"], r["typcategory"], r["typtype"]})
	}
}

func TestInfo(t *testing.T) {
	d := exampleDB(t)
	info := NewInfo(d)
	path := []string{"ann", "public"}
	oid := func(name string) uint32 {
		o, ok := info.RelationOID(name, path)
		require.True(t, ok, name)
		return o
	}
	require.EqualValues(t, 1259, oid("pg_class"))
	require.EqualValues(t, 1259, oid(`"pg_catalog" . PG_Class`))
	require.Equal(t, oid("t"), oid("db.public.T"))
	for _, bad := range []string{"s", "x", `"t`, "a.b.c.d", "other.public.t", "", "t.", `"T"`} {
		_, ok := info.RelationOID(bad, path)
		require.False(t, ok, bad)
	}
	for name, want := range map[string]string{"t": "t", "shop.s": "shop.s", "t_pkey": "t_pkey", "pg_class": "pg_class", "information_schema.tables": "information_schema.tables"} {
		got, ok := info.RelationName(oid(name), path)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	require.True(t, info.RelationVisible(oid("t"), path))
	require.False(t, info.RelationVisible(oid("shop.s"), path))
	require.True(t, info.RelationVisible(oid("t_pkey"), path))
	require.False(t, info.RelationVisible(99, path))
	def, ok := info.IndexDefinition(oid("t_pkey"), 0, false)
	require.True(t, ok)
	require.Equal(t, `CREATE UNIQUE INDEX t_pkey ON public.t USING btree (id, "Big")`, def)
	def, _ = info.IndexDefinition(oid("t_pkey"), 2, false)
	require.Equal(t, `"Big"`, def)
	_, ok = info.IndexDefinition(oid("t"), 0, false)
	require.False(t, ok)
	var defs []string
	for _, c := range table(t, d, "pg_catalog", "pg_constraint") {
		var n uint32
		_, err := fmt.Sscan(c["oid"], &n)
		require.NoError(t, err)
		s, ok := info.ConstraintDefinition(n, false)
		require.True(t, ok)
		defs = append(defs, s)
	}
	require.Equal(t, []string{`PRIMARY KEY (id, "Big")`, "CHECK ((id > 0))", `CHECK ((a <> '"Big"'))`}, defs)
	def, _ = info.ViewDefinition(oid("m"), nil)
	require.Equal(t, " SELECT count(*) AS n FROM shop.s;", def)
	_, ok = info.ViewDefinition(oid("t"), nil)
	require.False(t, ok)
	text, _ := info.Comment(oid("t"), "pg_class", 0)
	require.Equal(t, "a table", text)
	text, _ = info.Comment(oid("t"), "pg_class", 2)
	require.Equal(t, "first", text)
	text, _ = info.Comment(PublicOID, "pg_namespace", 0)
	require.Equal(t, "standard public schema", text)
	text, _ = info.Comment(1397, "pg_proc", 0)
	require.Equal(t, "absolute value", text)
	n, _ := info.RelationSize(oid("m"))
	require.EqualValues(t, 10000, n)
	for name, want := range map[string]uint32{"streamdb": 10, "ann": 16383} {
		o, ok := info.RoleOID(name)
		require.True(t, ok)
		require.Equal(t, want, o)
		back, _ := info.RoleName(o)
		require.Equal(t, name, back)
	}
}

// Derived OIDs of any two objects differ, and lead back to their object.
func TestDerivedOIDsAreUnique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfNDistinct(rapid.Uint64Range(firstUserID, 1<<40), 1, 20, rapid.ID[uint64]).Draw(t, "ids")
		if rapid.Bool().Draw(t, "dense") {
			first := rapid.Uint64Range(firstUserID, maxIDWithMany+10).Draw(t, "first")
			for i := range ids {
				ids[i] = first + uint64(i)
			}
		}
		seen := map[uint32]string{}
		put := func(oid uint32, id uint64, what string) {
			if oid == 0 {
				return
			}
			if old, ok := seen[oid]; ok {
				t.Fatalf("%s and %s share OID %d", old, what, oid)
			}
			seen[oid] = what
			if back, _, _ := splitOID(oid); back != id {
				t.Fatalf("OID %d of %s leads to relation %d", oid, what, back)
			}
		}
		for _, id := range ids {
			o := &Object{ID: id}
			for class, oid := range []uint32{relationOID(o), indexOID(o), primaryKeyOID(o), rowTypeOID(o), rowArrayOID(o), serverOID(o)} {
				put(oid, id, fmt.Sprintf("class %d of %d", class, id))
			}
			for _, i := range []int{0, 1, firstCheck - 1, firstCheck, firstCheck + 1, 1600} {
				put(defaultOID(o, i), id, fmt.Sprintf("default %d of %d", i, id))
			}
			for _, i := range []int{0, 1, 255, 256, 5000} {
				put(checkOID(o, i), id, fmt.Sprintf("check %d of %d", i, id))
			}
		}
	})
}

func BenchmarkPgAttribute(b *testing.B) {
	d := exampleDB(b)
	for b.Loop() {
		if err := d.Rows(context.Background(), PgCatalog, "pg_attribute", []int{0, 1, 2, 5}, func(*types.Chunk) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

func TestSecurityRelations(t *testing.T) {
	d := exampleDB(t)
	d.Sessions = func() []SessionInfo {
		serial, ok := new(big.Int).SetString("123456789012345678901234567890", 10)
		require.True(t, ok)
		return []SessionInfo{
			{PID: 1, User: "ann"},
			{PID: 2, User: "ann", ClientPort: 7, TLS: &TLSInfo{Version: "TLSv1.3", Cipher: "TLS_AES_128_GCM_SHA256", Bits: 128, ClientDN: "/CN=ann", IssuerDN: "/CN=ca", Serial: serial}},
			{PID: 3, User: "ann", ClientPort: 8},
		}
	}
	require.Equal(t, []map[string]string{
		{
			"pid": "2", "ssl": "t", "version": "TLSv1.3", "cipher": "TLS_AES_128_GCM_SHA256", "bits": "128", "client_dn": "/CN=ann",
			"client_serial": "123456789012345678901234567890", "issuer_dn": "/CN=ca",
		},
		{"pid": "3", "ssl": "f", "version": "∅", "cipher": "∅", "bits": "∅", "client_dn": "∅", "client_serial": "∅", "issuer_dn": "∅"},
	}, table(t, d, "pg_catalog", "pg_stat_ssl"))
	require.Len(t, table(t, d, "pg_catalog", "pg_stat_gssapi"), 2)
	rules := table(t, d, "pg_catalog", "pg_hba_file_rules")
	require.Equal(t, map[string]string{
		"line_number": "1", "type": "host", "database": "{all}", "user_name": "{a,b}", "address": "10.0.0.0", "netmask": "255.0.0.0", "auth_method": "cert",
		"options": "{x=y}", "error": "∅",
	}, rules[0])
	require.Equal(t, "faulty", rules[1]["error"])
	require.Equal(t, "∅", rules[1]["type"])
}
