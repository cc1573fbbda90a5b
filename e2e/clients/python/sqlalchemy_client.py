"""SQLAlchemy 2 over psycopg2 and psycopg 3: metadata.create_all, ORM, reflection of everything that the inspector offers."""

import datetime
import decimal

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from checks import same


def run(driver):
    engine = sa.create_engine(f"postgresql+{driver}://", connect_args={"options": "-c search_path=c_sqlalchemy"})
    with engine.begin() as c:
        c.execute(sa.text("DROP SCHEMA IF EXISTS c_sqlalchemy CASCADE"))
        c.execute(sa.text("CREATE SCHEMA c_sqlalchemy"))

    class Base(DeclarativeBase):
        pass

    class Item(Base):
        __tablename__ = "item"
        __table_args__ = (sa.UniqueConstraint("sku", name="item_sku_key"), sa.Index("item_name_idx", "name"), sa.CheckConstraint("price >= 0", name="price_ok"),
                          {"comment": "what is sold"})
        id: Mapped[int] = mapped_column(primary_key=True)
        sku: Mapped[str] = mapped_column(sa.String(20))
        name: Mapped[str] = mapped_column(comment="shown to people")
        price: Mapped[decimal.Decimal] = mapped_column(sa.Numeric(10, 2), server_default="0")
        added: Mapped[datetime.datetime] = mapped_column(sa.DateTime(timezone=True), server_default=sa.func.now())
        kind: Mapped[str] = mapped_column(sa.Enum("small", "big", name="item_kind"))

    Base.metadata.create_all(engine)
    Base.metadata.create_all(engine)  # finds that all is there
    with engine.begin() as c:
        c.execute(sa.text("CREATE VIEW cheap AS SELECT id, name FROM item WHERE price < 10"))
    with engine.begin() as c:
        c.execute(sa.text("CREATE MATERIALIZED VIEW per_kind AS SELECT kind, count(*) AS n, sum(price) AS total FROM item GROUP BY kind"))
    with Session(engine) as s:
        s.add_all([Item(sku=f"s{i}", name=f"n{i}", price=decimal.Decimal(i), kind="big" if i % 2 else "small") for i in range(10)])
        s.commit()
        same("orm", s.scalars(sa.select(Item.name).where(Item.price > 7).order_by(Item.id)).all(), ["n8", "n9"])
        item = s.scalars(sa.select(Item).where(Item.sku == "s3")).one()
        item.price = decimal.Decimal("3.50")
        s.delete(s.scalars(sa.select(Item).where(Item.sku == "s4")).one())
        s.commit()
        s.execute(sa.text("REFRESH MATERIALIZED VIEW per_kind"))
        s.commit()
        same("view", [tuple(r) for r in s.execute(sa.text("SELECT kind::text, n, total FROM per_kind ORDER BY kind"))],
             [("big", 5, decimal.Decimal("25.50")), ("small", 4, decimal.Decimal("16.00"))])

    insp = sa.inspect(engine)
    same("schemas", "c_sqlalchemy" in insp.get_schema_names(), True)
    same("tables", insp.get_table_names(), ["item"])
    same("views", insp.get_view_names(), ["cheap"])
    same("materialized", insp.get_materialized_view_names(), ["per_kind"])
    same("definition", "FROM" in insp.get_view_definition("cheap").upper(), True)
    cols = {c["name"]: c for c in insp.get_columns("item")}
    same("columns", list(cols), ["id", "sku", "name", "price", "added", "kind"])
    same("types", [str(c["type"]) for c in cols.values()], ["INTEGER", "VARCHAR(20)", "VARCHAR", "NUMERIC(10, 2)", "TIMESTAMP", "VARCHAR(5)"])
    same("enum", cols["kind"]["type"].enums, ["small", "big"])
    same("nullable", [c["nullable"] for c in cols.values()], [False] * 6)
    same("serial", cols["id"]["default"], "nextval('item_id_seq'::regclass)")
    same("column comment", cols["name"]["comment"], "shown to people")
    same("table comment", insp.get_table_comment("item"), {"text": "what is sold"})
    same("key", insp.get_pk_constraint("item")["constrained_columns"], ["id"])
    same("unique", [(u["name"], u["column_names"]) for u in insp.get_unique_constraints("item")], [("item_sku_key", ["sku"])])
    same("indexes", sorted((i["name"], tuple(i["column_names"]), i["unique"]) for i in insp.get_indexes("item")),
         [("item_name_idx", ("name",), False), ("item_sku_key", ("sku",), True)])
    same("checks", [c["name"] for c in insp.get_check_constraints("item")], ["price_ok"])
    same("foreign keys", insp.get_foreign_keys("item"), [])
    same("enums", [(e["name"], e["labels"]) for e in insp.get_enums()], [("item_kind", ["small", "big"])])
    same("sequences", insp.get_sequence_names(), ["item_id_seq"])
    meta = sa.MetaData()
    meta.reflect(engine, views=True)
    same("reflected", sorted(meta.tables), ["cheap", "item", "per_kind"])
    view = sa.Table("per_kind", sa.MetaData(), autoload_with=engine)
    same("reflected view", [c.name for c in view.columns], ["kind", "n", "total"])
    with engine.connect().execution_options(stream_results=True) as c:
        same("streamed", len(c.execute(sa.select(meta.tables["item"])).all()), 9)
    with engine.begin() as c:
        c.execute(sa.text("DROP SCHEMA c_sqlalchemy CASCADE"))
    engine.dispose()


for driver in ("psycopg2", "psycopg"):
    run(driver)
