"""What `tacit data` shows: descriptions, comparisons, prepared logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.commands.output import print_table

if TYPE_CHECKING:
    from tacit.data.comparison import LogComparison
    from tacit.data.description import LogDescription
    from tacit.data.preparation import PreparedLog


def print_description(description: LogDescription) -> None:
    what = "synthetic" if description.synthetic else "this file"
    known = description.log.figures_from
    rows = [
        (name, _show_number(description.published_figure(name)), _show_number(value))
        for name, value in description.figures.items()
    ]
    print_table(f"{description.log.title}: {what}", ("figure", known, what), rows, numbers=(known, what))
    fields = [
        (
            each.name,
            each.role,
            _show_number(description.published_figure(f"{each.name}: values")),
            _show_number(each.values),
            _show_share(each.top_share),
            _show_share(each.top_twenty_share),
            f"{each.gini:.2f}",
            _show_share(description.published_figure(f"{each.name}: missing")),
            _show_share(each.missing),
        )
        for each in description.fields
    ]
    shares = ("top", "top 20", "gini", f"missing, {known}", "missing")
    columns = ("field", "side", f"values, {known}", "values", *shares)
    size = f"{description.figures['rows']:,.0f}"
    title = f"Fields: values, or buckets of numbers, among {size} rows ({what}); those {known} among all"
    print_table(title, columns, fields, numbers=columns[2:])
    if description.bad_rows.count:
        print(f"{description.bad_rows.count} bad rows, first: {description.bad_rows.first[0]}")


def print_comparison(found: LogComparison) -> None:
    record, sides = found.as_json(), ("made up", "file")
    figures = [
        (each["name"], _show_number(each["made_up"]), _show_number(each["file"])) for each in record["figures"]
    ]
    print_table(
        f"{found.file.log.title}: a file beside a made-up log", ("figure", *sides), figures, numbers=sides
    )
    fields = [
        (
            each["name"],
            each["role"],
            *(_show_number(value) for value in each["values"]),
            *(_show_share(value) for name in ("top_twenty_share", "missing") for value in each[name]),
        )
        for each in record["fields"]
    ]
    columns = [f"{what}, {side}" for what in ("values", "top 20", "missing") for side in sides]
    print_table("Fields", ("field", "side", *columns), fields, numbers=columns)
    signals = [(each["name"], f"{each['made_up']:.3f}", f"{each['file']:.3f}") for each in record["signals"]]
    if signals:
        title = f"What each tells about the label, as AUC alone, in {found.rows:,} rows of each"
        print_table(title, ("field", *sides), signals, numbers=sides)


def print_prepared(prepared: PreparedLog) -> None:
    record = prepared.as_json()
    kind = "synthetic rows" if record["synthetic"] else "rows"
    share = f"{100 * record['positive_rate']:.2f}%"
    flag = record["label_kind"] == "flag"  # another number is above 0, which is not yet to say that it is good
    positive = f"{share} positive" if flag else f"label (a {record['label_kind']} number) above 0 in {share}"
    print(f"{record['out']}: {record['rows']:,} {kind} of {record['log']}, {positive}")
    parts = ", ".join(f"{name} {count:,}" for name, count in record["parts"].items())
    public, sensitive = (len(record["fields"][side]) for side in ("public", "sensitive"))
    tables = record["table_rows"]
    for side, fields in (("public", public), ("sensitive", sensitive)):
        print(f"  {fields} {side} field{'' if fields == 1 else 's'}, table of {tables[side]:,} rows")
    print(f"  {prepared.columns.split.way} parts: {parts}")
    if record["rows_passed_over"]:
        print(f"  passed over: {record['rows_passed_over']:,} rows that are no examples by the log's rule")
    for name, count in record["not_numbers"].items():
        print(f"  not a number: {name} is NaN in {count:,} rows, and read as missing there")
    bad = record["bad_rows"]
    if bad["count"]:
        print(f"  bad rows: {bad['count']:,}")
        for row in bad["first"]:
            column = f", column {row['column']}" if row["column"] else ""
            print(f"    line {row['line']}{column}: {row['problem']}")
        if bad["count"] > len(bad["first"]):
            print(f"    and {bad['count'] - len(bad['first']):,} more")


def _show_number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.4g}"


def _show_share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}%"
