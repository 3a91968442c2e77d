//! A YAML document as a tree that knows where each value stands: to change fields by path, and to
//! point at a field that parses but makes no sense. Knows no scenario.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{Location, Spanned};

/// A value and where it stands.
#[derive(Debug)]
pub(super) struct Tree {
    at: Location,
    node: Node,
}

#[derive(Debug)]
enum Node {
    Leaf(Value),
    List(Vec<Tree>),
    Map(Vec<(Spanned<String>, Tree)>),
}

impl Tree {
    /// Reads a document.
    pub(super) fn parse(text: &str) -> Result<Self, serde_saphyr::Error> {
        // Only `true` and `false` are: an `y` or `on` is left to what the field makes of it.
        let options = serde_saphyr::options! { strict_booleans: true };
        serde_saphyr::from_str_with_options(text, options)
    }

    /// Line and column of the field at `path` (`a.b[2].c`), or of the nearest field around it.
    pub(super) fn locate(&self, path: &str) -> (u64, u64) {
        let mut at = (self.at.line(), self.at.column());
        let mut here = self;
        for step in steps(path) {
            let next = match (&here.node, step) {
                (Node::Map(fields), Step::Field(name)) => {
                    fields.iter().find(|(key, _)| key.value == name).map(|(key, value)| {
                        at = (key.referenced.line(), key.referenced.column());
                        value
                    })
                }
                (Node::List(items), Step::Item(place)) => items.get(place).inspect(|item| {
                    at = (item.at.line(), item.at.column());
                }),
                (Node::Leaf(_) | Node::Map(_) | Node::List(_), _) => None,
            };
            let Some(next) = next else { break };
            here = next;
        }
        at
    }

    /// The same without places.
    pub(super) fn into_value(self) -> Value {
        match self.node {
            Node::Leaf(value) => value,
            Node::List(items) => Value::Array(items.into_iter().map(Self::into_value).collect()),
            Node::Map(fields) => {
                Value::Object(fields.into_iter().map(|(k, v)| (k.value, v.into_value())).collect())
            }
        }
    }
}

/// One step of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step<'a> {
    Field(&'a str),
    Item(usize),
}

/// The steps of `a.b[2].c`. What is in brackets and no number is read as a field of that name.
pub(super) fn steps(path: &str) -> impl Iterator<Item = Step<'_>> {
    path.split('.').flat_map(|part| part.split('[')).filter(|part| !part.is_empty()).map(|part| {
        let inside = part.strip_suffix(']');
        match inside.and_then(|number| number.parse().ok()) {
            Some(place) => Step::Item(place),
            None => Step::Field(part),
        }
    })
}

/// Sets the field at `path`, making the mappings on the way; what a list lacks is an error.
pub(super) fn set(root: &mut Value, path: &str, value: Value) -> Result<(), String> {
    let mut here = root;
    for step in steps(path) {
        here = match step {
            Step::Field(name) => {
                if here.is_null() {
                    *here = Value::Object(Map::new());
                }
                let Some(fields) = here.as_object_mut() else {
                    return Err(format!("there is no field {name:?} in a single value or a list"));
                };
                fields.entry(name).or_insert(Value::Null)
            }
            Step::Item(place) => {
                let count = here.as_array().map_or(0, Vec::len);
                let item = here.as_array_mut().and_then(|items| items.get_mut(place));
                item.ok_or_else(|| format!("there is no item {place}: there are {count}"))?
            }
        };
    }
    *here = value;
    Ok(())
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } = Spanned::<Node>::deserialize(deserializer)?;
        Ok(Self { at: referenced, node: value })
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Node;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            fn visit_unit<E: Error>(self) -> Result<Node, E> {
                Ok(Node::Leaf(Value::Null))
            }
            fn visit_none<E: Error>(self) -> Result<Node, E> {
                Ok(Node::Leaf(Value::Null))
            }
            fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Node, D::Error> {
                inner.deserialize_any(self)
            }
            fn visit_bool<E: Error>(self, value: bool) -> Result<Node, E> {
                Ok(Node::Leaf(Value::Bool(value)))
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<Node, E> {
                Ok(Node::Leaf(value.into()))
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Node, E> {
                Ok(Node::Leaf(value.into()))
            }
            fn visit_f64<E: Error>(self, value: f64) -> Result<Node, E> {
                let number = Number::from_f64(value);
                let number = number.ok_or_else(|| E::custom("a number must be finite"))?;
                Ok(Node::Leaf(Value::Number(number)))
            }
            fn visit_str<E: Error>(self, value: &str) -> Result<Node, E> {
                Ok(Node::Leaf(value.into()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = access.next_element()? {
                    items.push(item);
                }
                Ok(Node::List(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = access.next_entry()? {
                    fields.push(field);
                }
                Ok(Node::Map(fields))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_located_and_set() {
        let text = "a: 1\nb:\n  c: [x, y]\n  d: {e: 2}\n";
        let tree = Tree::parse(text).expect("YAML");
        assert_eq!(tree.locate("b.d.e"), (4, 7));
        assert_eq!(tree.locate("b.c[1]"), (3, 10));
        assert_eq!(tree.locate("b.nothing"), (2, 1), "the nearest around it");
        let mut value = tree.into_value();
        set(&mut value, "b.d.e", 3.into()).expect("set");
        set(&mut value, "b.c[0]", "z".into()).expect("set");
        set(&mut value, "new.deep", true.into()).expect("set");
        assert!(set(&mut value, "b.c[2]", 1.into()).expect_err("none").contains("there are 2"));
        assert!(set(&mut value, "a.x", 1.into()).is_err());
        let text = r#"{"a":1,"b":{"c":["z","y"],"d":{"e":3}},"new":{"deep":true}}"#;
        assert_eq!(value, serde_json::from_str::<Value>(text).expect("JSON"));
    }
}
