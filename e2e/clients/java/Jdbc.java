import java.math.BigDecimal;
import java.io.StringReader;
import java.sql.*;
import java.util.*;

import org.postgresql.PGConnection;

// pgjdbc: simple and extended queries, server-side prepared statements in binary, fetchSize portals, batches, COPY, and the metadata of DatabaseMetaData.
public class Jdbc {
    static int checks;

    static void same(String what, Object got, Object want) {
        if (!Objects.equals(String.valueOf(got), String.valueOf(want))) {
            System.err.println(what + ": got " + got + ", want " + want);
            System.exit(1);
        }
        checks++;
    }

    static List<String> names(ResultSet rs, String... columns) throws SQLException {
        List<String> out = new ArrayList<>();
        while (rs.next()) {
            StringBuilder b = new StringBuilder();
            for (String c : columns) b.append(b.length() > 0 ? " " : "").append(rs.getString(c));
            out.add(b.toString());
        }
        return out;
    }

    public static void main(String[] args) throws Exception {
        String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/" + System.getenv("PGDATABASE");
        Properties p = new Properties();
        p.setProperty("user", System.getenv("PGUSER"));
        p.setProperty("password", "");
        for (String mode : new String[] {"extended", "simple", "extendedForPrepared", "extendedCacheEverything"}) {
            p.setProperty("preferQueryMode", mode);
            try (Connection c = DriverManager.getConnection(url, p)) {
                run(c, mode);
            }
        }
        System.out.println(checks + " checks");
    }

    static void run(Connection c, String mode) throws Exception {
        try (Statement s = c.createStatement()) {
            s.execute("DROP SCHEMA IF EXISTS c_jdbc CASCADE");
            s.execute("CREATE SCHEMA c_jdbc");
            s.execute("SET search_path = c_jdbc");
            s.execute("CREATE TABLE item (id serial PRIMARY KEY, name varchar(40) NOT NULL, price numeric(10,2) DEFAULT 0, added timestamptz, tags text[], raw bytea, ok boolean, n bigint, UNIQUE (name))");
            s.execute("CREATE INDEX item_price ON item (price DESC, name)");
            s.execute("COMMENT ON TABLE item IS 'what is sold'");
            s.execute("CREATE VIEW cheap AS SELECT id, name FROM item WHERE price < 5");
            s.execute("CREATE MATERIALIZED VIEW per_ok AS SELECT ok, count(*) AS n FROM item GROUP BY ok");
        }
        same("product", c.getMetaData().getDatabaseProductName(), "PostgreSQL");
        Timestamp at = Timestamp.valueOf("2024-02-29 12:30:00.125");
        try (PreparedStatement s = c.prepareStatement("INSERT INTO item (name, price, added, tags, raw, ok, n) VALUES (?,?,?,?,?,?,?)", Statement.RETURN_GENERATED_KEYS)) {
            s.setString(1, "a");
            s.setBigDecimal(2, new BigDecimal("1.50"));
            s.setTimestamp(3, at);
            s.setArray(4, c.createArrayOf("text", new Object[] {"x", null, "y,z"}));
            s.setBytes(5, new byte[] {0, (byte) 255});
            s.setBoolean(6, true);
            s.setLong(7, 1L << 40);
            same("insert", s.executeUpdate(), 1);
            try (ResultSet rs = s.getGeneratedKeys()) {
                rs.next();
                same("generated key", rs.getInt("id"), 1);
            }
        }
        try (PreparedStatement s = c.prepareStatement("SELECT name, price, added, tags, raw, ok, n FROM item WHERE id = ?")) {
            for (int i = 0; i < 8; i++) {
                s.setInt(1, 1);
                try (ResultSet rs = s.executeQuery()) {
                    rs.next();
                    same("row", Arrays.asList(rs.getString(1), rs.getBigDecimal(2), rs.getTimestamp(3), Arrays.toString((Object[]) rs.getArray(4).getArray()), rs.getBytes(5).length, rs.getBoolean(6), rs.getLong(7)),
                        Arrays.asList("a", "1.50", at, "[x, null, y,z]", 2, true, 1L << 40));
                }
            }
        }
        try (PreparedStatement s = c.prepareStatement("INSERT INTO item (name, price, ok) VALUES (?, ?, ?)")) {
            for (int i = 0; i < 300; i++) {
                s.setString(1, "n" + i);
                s.setInt(2, i);
                s.setBoolean(3, i % 3 == 0);
                s.addBatch();
            }
            same("batch", Arrays.stream(s.executeBatch()).filter(x -> x == 1).count(), 300);
        }
        c.setAutoCommit(false);
        try (PreparedStatement s = c.prepareStatement("SELECT id FROM item ORDER BY id")) {
            s.setFetchSize(50);
            try (ResultSet rs = s.executeQuery()) {
                int n = 0;
                while (rs.next()) {
                    same("order", rs.getInt(1), ++n);
                    if (n == 60) {
                        try (ResultSet m = c.getMetaData().getTables(null, "c_jdbc", "it%", new String[] {"TABLE"})) {
                            same("metadata between fetches", names(m, "TABLE_NAME"), "[item]");
                        }
                    }
                }
                same("fetched", n, 301);
            }
        }
        Savepoint sp = c.setSavepoint("sp");
        try (Statement s = c.createStatement()) {
            s.executeUpdate("INSERT INTO item (name) VALUES ('a')");
            same("unique", "no error", "23505");
        } catch (SQLException e) {
            same("unique", e.getSQLState(), "23505");
            c.rollback(sp);
        }
        c.commit();
        c.setAutoCommit(true);
        try (Statement s = c.createStatement()) {
            s.execute("REFRESH MATERIALIZED VIEW per_ok");
            try (ResultSet rs = s.executeQuery("SELECT ok, n FROM per_ok ORDER BY ok")) {
                same("view", names(rs, "ok", "n"), "[f 200, t 101]");
            }
            try (ResultSet rs = s.executeQuery("SELECT name, price, added FROM item LIMIT 1")) {
                ResultSetMetaData m = rs.getMetaData();
                same("columns", Arrays.asList(m.getColumnTypeName(1), m.getPrecision(2), m.getScale(2), m.getColumnTypeName(3), m.isNullable(1), m.isNullable(2), m.isAutoIncrement(1)),
                    Arrays.asList("varchar", 10, 2, "timestamptz", 0, 1, false));
            }
        }
        same("copy in", c.unwrap(PGConnection.class).getCopyAPI().copyIn("COPY item (name, price) FROM STDIN (FORMAT csv)", new StringReader("k1,1\nk2,2\n")), 2);

        DatabaseMetaData m = c.getMetaData();
        try (ResultSet rs = m.getSchemas()) {
            same("schemas", names(rs, "TABLE_SCHEM").contains("c_jdbc"), true);
        }
        try (ResultSet rs = m.getTables(null, "c_jdbc", "%", null)) {
            List<String> all = names(rs, "TABLE_TYPE", "TABLE_NAME", "REMARKS");
            for (String want : new String[] {"TABLE item what is sold", "VIEW cheap null", "MATERIALIZED VIEW per_ok null", "SEQUENCE item_id_seq null"}) same(want + " in " + all, all.contains(want), true);
        }
        try (ResultSet rs = m.getColumns(null, "c_jdbc", "item", "%")) {
            same("getColumns", names(rs, "COLUMN_NAME", "TYPE_NAME", "COLUMN_SIZE", "NULLABLE", "IS_AUTOINCREMENT"),
                "[id serial 10 0 YES, name varchar 40 0 NO, price numeric 10 1 NO, added timestamptz 35 1 NO, tags _text 2147483647 1 NO, raw bytea 2147483647 1 NO, ok bool 1 1 NO, n int8 19 1 NO]");
        }
        try (ResultSet rs = m.getColumns(null, "c_jdbc", "per_ok", "%")) {
            same("getColumns of a view", names(rs, "COLUMN_NAME", "TYPE_NAME"), "[ok bool, n int8]");
        }
        try (ResultSet rs = m.getPrimaryKeys(null, "c_jdbc", "item")) {
            same("getPrimaryKeys", names(rs, "COLUMN_NAME", "KEY_SEQ", "PK_NAME"), "[id 1 item_pkey]");
        }
        try (ResultSet rs = m.getIndexInfo(null, "c_jdbc", "item", false, true)) {
            same("getIndexInfo", names(rs, "NON_UNIQUE", "INDEX_NAME", "COLUMN_NAME", "ASC_OR_DESC"), "[f item_name_key name A, f item_pkey id A, t item_price price D, t item_price name A]");
        }
        try (ResultSet rs = m.getImportedKeys(null, "c_jdbc", "item")) {
            same("getImportedKeys", names(rs, "PKTABLE_NAME"), "[]");
        }
        try (ResultSet rs = m.getExportedKeys(null, "c_jdbc", "item")) {
            same("getExportedKeys", names(rs, "PKTABLE_NAME"), "[]");
        }
        try (ResultSet rs = m.getBestRowIdentifier(null, "c_jdbc", "item", DatabaseMetaData.bestRowSession, false)) {
            same("getBestRowIdentifier", names(rs, "COLUMN_NAME"), "[id]");
        }
        for (ResultSet rs : new ResultSet[] {m.getTypeInfo(), m.getCatalogs(), m.getTableTypes(), m.getFunctions(null, "pg_catalog", "lower"), m.getFunctionColumns(null, "pg_catalog", "lower", "%"),
                m.getProcedures(null, "c_jdbc", "%"), m.getProcedureColumns(null, "c_jdbc", "%", "%"), m.getTablePrivileges(null, "c_jdbc", "item"), m.getColumnPrivileges(null, "c_jdbc", "item", "%"),
                m.getUDTs(null, "c_jdbc", "%", null), m.getVersionColumns(null, "c_jdbc", "item"), m.getClientInfoProperties()}) {
            while (rs.next()) rs.getObject(1);
            rs.close();
            checks++;
        }
        same("keywords", m.getSQLKeywords().length() > 100, true);
        same("isolation", c.getTransactionIsolation(), Connection.TRANSACTION_READ_COMMITTED);
        c.setReadOnly(true);
        c.setReadOnly(false);
        try (Statement s = c.createStatement()) {
            s.setQueryTimeout(1);
            try {
                s.execute("SELECT pg_sleep(60)");
                same("timeout", "no error", "57014");
            } catch (SQLException e) {
                same("timeout", e.getSQLState(), "57014");
            }
            s.execute("DROP SCHEMA c_jdbc CASCADE");
        }
    }
}
