//! One figure with its budget, and how it is printed.

use serde_json::{Value, json};

/// A figure fails the gate when it misses its floor by more than this: runs on shared machines differ.
const GATE: f64 = 0.8;

/// A measured figure.
pub struct Row {
    /// What was measured.
    pub name: String,
    /// Client connections, where there are any.
    pub connections: Option<u32>,
    /// A ratio, unless the name says otherwise.
    pub value: f64,
    /// What it must be.
    pub budget: Budget,
    /// Where it comes from, for people.
    pub detail: String,
    /// Why the figure does not count, whatever its value.
    pub fault: Option<String>,
}

/// What a figure must be at least (or at most), and what it is meant to become.
#[derive(Clone, Copy)]
pub struct Budget {
    floor: Option<f64>,
    aim: Option<f64>,
    better: Better,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Better {
    Higher,
    Lower,
}

/// The latency that a decision adds at one connection, in Redis round trips.
pub const LATENCY: Budget = Budget::at_most(3.0, 1.5);
/// The time to find a policy among a thousand routes, in times of that among ten.
pub const ROUTES: Budget = Budget::at_most(2.0, 1.3);
/// The Redis time of a decision, in times of a script of `INCR` and `PEXPIRE`.
pub const SCRIPT: Budget = Budget::at_most(5.0, 2.5);

/// Requests each second of our Worker ÷ those of another way to limit.
pub const AHEAD: Budget = Budget::at_least(1.0, 1.25);
/// The time that workerd takes longer to start with our Worker, in ms.
pub const WORKER_START: Budget = Budget::at_most(50.0, 25.0);

impl Budget {
    /// Lower is better.
    pub const fn at_most(floor: f64, aim: f64) -> Self {
        Self { floor: Some(floor), aim: Some(aim), better: Better::Lower }
    }

    const fn at_least(floor: f64, aim: f64) -> Self {
        Self { floor: Some(floor), aim: Some(aim), better: Better::Higher }
    }

    /// None: the figure is for comparison.
    pub const NONE: Self = Self { floor: None, aim: None, better: Better::Higher };

    fn is_met(self, value: f64, bound: Option<f64>) -> bool {
        bound.is_none_or(|bound| match self.better {
            Better::Higher => value >= bound,
            Better::Lower => value <= bound,
        })
    }
}

/// The budget of a throughput ratio, where there is one.
pub fn throughput_budget(name: &str, connections: u32) -> Budget {
    match (name, connections) {
        ("strict", 64 | 256) => Budget::at_least(0.40, 0.60),
        ("strict_proxied", 64) => Budget::at_least(0.65, 0.90),
        ("local", 64) => Budget::at_least(0.50, 0.75),
        _ => Budget::NONE,
    }
}

/// The middle one. Panics without values: a measurement that was not made.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl Row {
    /// Whether the figure meets its floor.
    fn is_ok(&self) -> bool {
        self.fault.is_none() && self.budget.is_met(self.value, self.budget.floor)
    }

    /// Whether the figure meets its floor within the tolerance of the gate.
    pub fn passes_gate(&self) -> bool {
        let gate = |floor| match self.budget.better {
            Better::Higher => floor * GATE,
            Better::Lower => floor / GATE,
        };
        self.fault.is_none() && self.budget.is_met(self.value, self.budget.floor.map(gate))
    }

    /// One line for machines.
    pub fn json(&self) -> Value {
        let value = (self.value * 1000.0).round() / 1000.0;
        let mut row =
            json!({ "name": self.name, "floor": self.budget.floor, "aim": self.budget.aim, "ok": self.is_ok() });
        let unit = ["kib", "ms"].into_iter().find(|unit| self.name.ends_with(&format!("_{unit}")));
        row[unit.unwrap_or("ratio")] = json!(value);
        if let Some(connections) = self.connections {
            row["connections"] = json!(connections);
        }
        row
    }
}

/// Prints all rows for people.
pub fn print_table(rows: &[Row]) {
    let cell = |number: Option<f64>| number.map_or_else(|| "-".into(), |number| format!("{number:.2}"));
    println!("{:<28} {:>11} {:>8} {:>8} {:>8}  {:<7} from", "figure", "connections", "value", "floor", "aim", "");
    for row in rows {
        let verdict = match (row.budget.floor, row.is_ok(), row.budget.is_met(row.value, row.budget.aim)) {
            (_, false, _) => "MISSED",
            (None, ..) => "",
            (_, true, false) => "ok",
            (_, true, true) => "ok, aim",
        };
        let connections = row.connections.map_or_else(|| "-".into(), |connections| connections.to_string());
        let [floor, aim] = [row.budget.floor, row.budget.aim].map(cell);
        println!(
            "{:<28} {connections:>11} {:>8.2} {floor:>8} {aim:>8}  {verdict:<7} {}",
            row.name,
            row.value,
            row.fault.as_ref().unwrap_or(&row.detail)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(value: f64, budget: Budget) -> Row {
        Row { name: "x".into(), connections: None, value, budget, detail: String::new(), fault: None }
    }

    #[test]
    fn the_gate_forgives_a_fifth_of_the_floor_and_no_more() {
        let higher = Budget::at_least(0.5, 0.75);
        assert!(row(0.41, higher).passes_gate() && !row(0.41, higher).is_ok() && !row(0.39, higher).passes_gate());
        let lower = Budget::at_most(4.0, 2.0);
        assert!(row(4.9, lower).passes_gate() && !row(4.9, lower).is_ok() && !row(5.1, lower).passes_gate());
        assert!(row(0.0, Budget::NONE).passes_gate());
    }

    #[test]
    fn a_fault_fails_whatever_the_value() {
        assert!(!Row { fault: Some("not strict".into()), ..row(9.0, Budget::NONE) }.passes_gate());
    }

    #[test]
    fn the_median_of_an_odd_number_is_the_middle_one() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }
}
