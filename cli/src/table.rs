//! Plain text tables: aligned columns without frames, so that they can be read, cut and compared.
//! Knows nothing of what it shows.

use console::{measure_text_width, truncate_str};

/// On which side of its column a cell stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table that is filled row by row and then drawn.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

const GAP: &str = "  ";

impl Table {
    /// A table with these columns: a heading each, and where its cells stand.
    pub(crate) fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Align)>) -> Self {
        let columns = columns.into_iter().map(|(h, a)| (h.to_owned(), a)).collect();
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row. Cells that are missing are empty; those too many are left out.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = cells.into_iter().map(|c| one_line(&c)).collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// The lines of the table, the headings first, none longer than `width` where one is given.
    pub(crate) fn lines(&self, width: Option<usize>) -> Vec<String> {
        let headings: Vec<String> = self.columns.iter().map(|(h, _)| h.clone()).collect();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|c| {
                let cells = self.rows.iter().chain(std::iter::once(&headings));
                cells.map(|row| measure_text_width(&row[c])).max().unwrap_or(0)
            })
            .collect();
        std::iter::once(&headings)
            .chain(&self.rows)
            .map(|row| {
                let line = self.line(row, &widths);
                match width {
                    Some(most) => truncate_str(&line, most, "…").into_owned(),
                    None => line,
                }
            })
            .collect()
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (c, cell) in row.iter().enumerate() {
            if c > 0 {
                line.push_str(GAP);
            }
            let room = widths[c].saturating_sub(measure_text_width(cell));
            match self.columns[c].1 {
                Align::Left => {
                    line.push_str(cell);
                    line.extend(std::iter::repeat_n(' ', room));
                }
                Align::Right => {
                    line.extend(std::iter::repeat_n(' ', room));
                    line.push_str(cell);
                }
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Values come from files and from the network; a line break in one must not break the table. The
/// escape that begins a colour is ours and stays.
fn one_line(cell: &str) -> String {
    cell.chars().map(|c| if c.is_control() && c != '\u{1b}' { '\u{fffd}' } else { c }).collect()
}

/// A rate for people: whole from 10 up, one digit below.
pub(crate) fn rate(rps: f64) -> String {
    if rps.abs() < 9.95 && rps != 0.0 { format!("{rps:.1}") } else { format!("{rps:.0}") }
}

/// A share of 1 as a percentage with one digit.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut t = Table::new([("name", Align::Left), ("rps", Align::Right)]);
        t.row(["a".to_owned(), "1234".to_owned()]);
        t.row(["longer".to_owned()]);
        t
    }

    #[test]
    fn columns_line_up() {
        assert_eq!(sample().lines(None), ["name     rps", "a       1234", "longer"]);
    }

    #[test]
    fn lines_are_cut_and_cells_stay_on_their_line() {
        assert!(sample().lines(Some(7)).iter().all(|l| measure_text_width(l) <= 7));
        let mut t = Table::new([("x", Align::Left), ("y", Align::Left)]);
        t.row(["a\nb".to_owned(), "c".to_owned(), "too many".to_owned()]);
        assert_eq!(t.lines(None)[1], "a\u{fffd}b  c");
    }

    #[test]
    fn colours_do_not_count_as_width() {
        let mut t = Table::new([("x", Align::Left), ("y", Align::Left)]);
        t.row(["\u{1b}[31mred\u{1b}[0m".to_owned(), "c".to_owned()]);
        t.row(["blue".to_owned(), "c".to_owned()]);
        assert_eq!(t.lines(None)[1], "\u{1b}[31mred\u{1b}[0m   c");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(rate(0.0), "0");
        assert_eq!(rate(3.26), "3.3");
        assert_eq!(rate(9.99), "10");
        assert_eq!(rate(1234.5), "1234");
        assert_eq!(percent(1.0 / 3.0), "33.3 %");
    }
}
