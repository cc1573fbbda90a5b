package server

import (
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql"
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
	o := &catalog.Object{Kind: catalog.Source, Schema: schema, Name: st.Name.Name, Definition: st.SourceText(), AppendOnly: true}
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
	case 1:
		wm := st.Watermarks[0]
		i := o.Column(wm.Column)
		if i < 0 {
			return pgerr.Newf(pgerr.UndefinedColumn, "column %q of WATERMARK does not exist", wm.Column).At(wm.Pos)
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

// checkSource validates the options and lets the connector derive or check the columns.
func (d *dispatch) checkSource(o *catalog.Object, def *catalog.SourceDef) error {
	reg := d.ss.srv.cfg.Connectors
	c, err := reg.Lookup(def.Connector)
	if err != nil {
		return err
	}
	cfg := &connector.SourceConfig{
		Name: o.Name, Options: def.Options, Format: def.Format, Encode: def.Encode, EncodeOptions: def.EncodeOptions, Columns: o.Stored(),
	}
	if err := reg.Validate(cfg); err != nil {
		return err
	}
	schema, err := c.Schema(cfg)
	if err != nil {
		return err
	}
	if len(o.Columns) == 0 {
		for _, col := range schema {
			o.Columns = append(o.Columns, catalog.Column{Name: col.Name, Type: col.Type})
		}
	}
	if len(o.Columns) == 0 {
		return pgerr.Newf(pgerr.InvalidObjectDefinition, "source %q needs a column list", o.Name)
	}
	cfg.Columns = o.Stored()
	src, err := c.Source(d.ctx, cfg)
	if err != nil {
		return err
	}
	return src.Close()
}
