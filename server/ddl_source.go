package server

import (
	"slices"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

func option(opts []sql.Option, name string) (sql.Option, bool) {
	for _, o := range opts {
		if strings.EqualFold(o.Name, name) {
			return o, true
		}
	}
	return sql.Option{}, false
}

func (d *dispatch) createSource(st *sql.CreateSource) error {
	unlock, err := d.lockSchema()
	if err != nil {
		return err
	}
	defer unlock()
	schema, err := d.targetSchema(st.Name)
	if err != nil {
		return err
	}
	if done, err := d.exists(schema, st.Name, st.IfNotExists, "CREATE SOURCE"); done || err != nil {
		return err
	}
	o := &catalog.Object{Kind: catalog.Source, Schema: schema, Name: st.Name.Name, AppendOnly: true}
	if _, err := d.columnsOf(&st.TableDef, o); err != nil {
		return err
	}
	if o.Constraint != "" {
		return pgerr.Newf(pgerr.FeatureNotSupported, "a source cannot have a primary key").At(st.Start).WithHint("Rows of a source are only added; use DISTINCT or a grouped view over it.")
	}
	def := &catalog.SourceDef{Options: map[string]string{}, EncodeOptions: map[string]string{}}
	for _, op := range st.Options {
		if strings.EqualFold(op.Name, connector.OptionConnector) {
			op.Name, def.Connector = connector.OptionConnector, op.Value
		}
		if _, dup := def.Options[op.Name]; dup {
			return pgerr.Newf(pgerr.SyntaxError, "option %q given more than once", op.Name).At(op.Pos)
		}
		def.Options[op.Name] = op.Value
	}
	if st.Format != nil {
		def.Format, def.Encode = st.Format.Format, st.Format.Encode
		for _, op := range st.Format.Options {
			def.EncodeOptions[op.Name] = op.Value
		}
	}
	if err := d.checkSource(o, def); err != nil {
		return err
	}
	switch len(st.Watermarks) {
	case 0:
		if i := slices.IndexFunc(st.Options, func(o sql.Option) bool { return o.Name == connector.OptionMaxDrift }); i >= 0 {
			return pgerr.Newf(pgerr.InvalidParameterValue, "option %q needs a watermark", connector.OptionMaxDrift).At(st.Options[i].Pos).
				WithHint("Add WATERMARK FOR column AS .. to the columns.")
		}
	case 1:
		wm := st.Watermarks[0]
		i := o.Column(wm.Column)
		if i < 0 {
			return pgerr.Newf(pgerr.UndefinedColumn, "column %q of WATERMARK does not exist", wm.Column).At(wm.Pos)
		}
		if o.Columns[i].Generated != "" {
			return pgerr.Newf(pgerr.FeatureNotSupported, "column %q AS PROCTIME() has a watermark of its own", wm.Column).At(wm.Pos).WithHint("Leave WATERMARK out.")
		}
		switch o.Columns[i].Type.OID {
		case types.OIDTimestamp, types.OIDTimestamptz:
		default:
			return pgerr.Newf(pgerr.DatatypeMismatch, "a watermark needs a timestamp column, %q is of type %s", wm.Column, o.Columns[i].Type).At(wm.Pos)
		}
		def.WatermarkColumn, def.WatermarkExpr = wm.Column, expressionText(wm.Expr)
		q, err := parseExpression(def.WatermarkExpr)
		if err != nil {
			return err
		}
		e, err := planner.BindScalar(q, o.Stored(), d.ss.planOptions(d.ss.snapshot(), nil))
		if err != nil {
			return atPos(err, wm.Pos)
		}
		if e.Type.OID != o.Columns[i].Type.OID {
			return pgerr.Newf(pgerr.DatatypeMismatch, "watermark expression is of type %s, column %q of type %s", e.Type, wm.Column, o.Columns[i].Type).At(wm.Pos)
		}
	default:
		return pgerr.Newf(pgerr.FeatureNotSupported, "a source can have one watermark").At(st.Watermarks[1].Pos)
	}
	o.Source = def
	if err := d.ss.update(func(tx *catalog.Tx) error {
		o.ID = tx.NextID()
		return tx.Add(o)
	}); err != nil {
		return err
	}
	return d.complete("CREATE SOURCE")
}

// procTimeColumn makes the column of a source that is generated: AS PROCTIME() and nothing else.
func (d *dispatch) procTimeColumn(c *sql.ColumnDef, o *catalog.Object) (catalog.Column, error) {
	col := catalog.Column{Name: c.Name, Type: types.Timestamptz, NotNull: true, Generated: procTimeText}
	if call, ok := pgext.ExprOf(c.Generated.Expr()).(*pgext.Call); !ok || call.Name != "proctime" || call.Schema != "" || len(call.Args) > 0 {
		return col, pgerr.Newf(pgerr.FeatureNotSupported, "generated columns of sources are not supported, except AS PROCTIME()").At(c.Pos).WithHint("Compute the column in a view.")
	}
	if slices.ContainsFunc(o.Columns, func(x catalog.Column) bool { return x.Generated != "" }) {
		return col, pgerr.Newf(pgerr.FeatureNotSupported, "a source can have one column AS PROCTIME()").At(c.Pos)
	}
	if c.Type == nil {
		return col, nil
	}
	typed, err := d.newColumn(c, o)
	if err == nil && typed.Type != types.Timestamptz {
		err = pgerr.Newf(pgerr.DatatypeMismatch, "PROCTIME() is of type timestamp with time zone, column %q of type %s", c.Name, typed.Type).At(c.Pos)
	}
	return col, err
}

// procTimeText is the expression that is stored with such a column.
const procTimeText = "proctime()"

// connectorColumns returns the columns of a source that its connector fills.
func connectorColumns(o *catalog.Object) (out types.Schema) {
	for i, c := range o.Stored() {
		if o.Columns[i].Generated == "" {
			out = append(out, c)
		}
	}
	return out
}

// checkSource validates the options and lets the connector derive or check the columns.
func (d *dispatch) checkSource(o *catalog.Object, def *catalog.SourceDef) error {
	reg := d.ss.srv.cfg.Connectors
	c, err := reg.Lookup(def.Connector)
	if err != nil {
		return err
	}
	cfg := &connector.SourceConfig{
		Name: o.Name, Options: def.Options, Format: def.Format, Encode: def.Encode, EncodeOptions: def.EncodeOptions, Columns: connectorColumns(o),
	}
	if err := reg.Validate(cfg); err != nil {
		return err
	}
	schema, err := c.Schema(cfg)
	if err != nil {
		return err
	}
	if len(cfg.Columns) == 0 {
		for i, col := range schema {
			if o.Column(col.Name) >= 0 {
				return pgerr.Newf(pgerr.DuplicateColumn, "column %q specified more than once", col.Name)
			}
			o.Columns = slices.Insert(o.Columns, i, catalog.Column{Name: col.Name, Type: col.Type})
		}
	}
	if cfg.Columns = connectorColumns(o); len(cfg.Columns) == 0 {
		return pgerr.Newf(pgerr.InvalidObjectDefinition, "source %q needs a column list", o.Name)
	}
	src, err := c.Source(d.ctx, cfg)
	if err != nil {
		return err
	}
	return src.Close()
}
