//! The JSON Schema of bucket files, for editors that complete and check them. Made from the tables
//! that the parser itself checks against; where a schema cannot say what the parser demands, the
//! parser's word counts.

use serde_json::{Map, Value, json};
use sluicegate_model::{
    Classes, MAX_BUCKETS_PER_SERVICE, MAX_NAME_BYTES, MAX_VALUE_BYTES, Per, TokenRate,
};

use crate::buckets::fields::{
    API_VERSION, BUCKET, Field, LIMIT_WITH_BURST, MATCH, MAX_DIMENSIONS, MAX_NOT, MAX_PATTERNS,
    MAX_TEXT_BYTES, MAX_VALUES, NOT, ONLY_WITH_LIMIT, PRIORITY, RATE, SERVICE, Shape, State, VALUE,
};

/// The schema, draft 2020-12.
#[must_use]
pub fn bucket_file() -> Value {
    let mut root = Map::new();
    root.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
    root.insert("title".into(), json!("Sluicegate bucket file"));
    root.insert("description".into(), json!("The buckets of one service."));
    if let Value::Object(object) = object(&SERVICE) {
        root.extend(object);
    }
    root.insert("$defs".into(), definitions());
    Value::Object(root)
}

fn definitions() -> Value {
    let digits = r"[0-9]+(_[0-9]+)*";
    json!({
        "bucket": bucket(),
        "match": object(&MATCH),
        "exclusion": not_empty(object(&NOT)),
        "pattern": {
            "description": "An exact value, `prefix*`, or `*` for any value that is present.",
            "type": ["string", "number", "boolean"],
            "maxLength": MAX_VALUE_BYTES,
        },
        "givenPattern": { "$ref": "#/$defs/pattern", "minLength": 1 },
        "patterns": one_or_many("#/$defs/pattern", MAX_PATTERNS),
        "count": {
            "description": "A whole number; `_` may stand between digits.",
            "anyOf": [
                { "type": "integer", "minimum": 0, "maximum": TokenRate::MAX_REQUESTS },
                { "type": "string", "pattern": format!("^{digits}$") },
            ],
        },
        "rate": {
            "description": "`N/s`, `N/m`, `N/h` or `unlimited`.",
            "type": "string",
            "pattern": format!("^({digits}/[smh]|unlimited)$"),
        },
        "window": object(&RATE),
        "limit": { "anyOf": [reference("rate"), reference("window")] },
        "limitWithBurst": object(&LIMIT_WITH_BURST),
        "standingLimit": {
            "anyOf": [reference("rate"), reference("window"), reference("limitWithBurst")],
        },
        "value": object(&VALUE),
        "priority": object(&PRIORITY),
        "class": {
            "type": ["string", "number", "boolean"],
            "not": { "const": "*" },
            "maxLength": MAX_VALUE_BYTES,
        },
    })
}

fn bucket() -> Value {
    let mut bucket = object(&BUCKET);
    let not_observed = ["limit", "burst", "values", "on_control_loss"].into_iter();
    let not_observed: Map<String, Value> =
        not_observed.chain(ONLY_WITH_LIMIT).map(|field| (field.into(), json!(false))).collect();
    let keyed = json!({ "anyOf": [{ "required": ["per"] }, { "required": ["fair_by"] }] });
    let limited = json!({
        "if": { "properties": { "mode": { "const": "observe" } }, "required": ["mode"] },
        "then": { "properties": not_observed },
        "else": { "required": ["limit"] },
        "not": { "required": ["fair_by", "priority"] },
        "dependentRequired": { "values": ["per"] },
        "dependentSchemas": { "max_keys": keyed, "overflow": keyed },
    });
    if let (Value::Object(bucket), Value::Object(limited)) = (&mut bucket, limited) {
        bucket.extend(limited);
    }
    bucket
}

fn not_empty(mut object: Value) -> Value {
    object["minProperties"] = json!(1);
    object
}

/// A map with the fields of a table, and no others.
fn object(table: &[Field]) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in table {
        let State::Taken(shape) = field.state else { continue };
        let mut property = of(shape);
        if let Value::Object(property) = &mut property {
            property.insert("description".into(), json!(field.doc));
        }
        properties.insert(field.name.into(), property);
        if field.required {
            required.push(field.name);
        }
    }
    let mut made = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    });
    if !required.is_empty() {
        made["required"] = json!(required);
    }
    made
}

fn of(shape: Shape) -> Value {
    match shape {
        Shape::ApiVersion => json!({ "const": API_VERSION }),
        Shape::Name => json!({
            "type": ["string", "number", "boolean"], "minLength": 1, "maxLength": MAX_NAME_BYTES,
        }),
        Shape::Text => {
            json!({ "type": ["string", "number", "boolean"], "maxLength": MAX_TEXT_BYTES })
        }
        Shape::Words(words) => {
            let each =
                words().into_iter().map(|(word, doc)| json!({ "const": word, "description": doc }));
            json!({ "oneOf": each.collect::<Vec<Value>>() })
        }
        Shape::Buckets => json!({
            "type": "array", "maxItems": MAX_BUCKETS_PER_SERVICE, "items": reference("bucket"),
        }),
        Shape::Match => reference("match"),
        Shape::Not => one_or_many("#/$defs/exclusion", MAX_NOT),
        Shape::Patterns => one_or_many("#/$defs/givenPattern", MAX_PATTERNS),
        Shape::Dimensions => json!({
            "type": "object",
            "maxProperties": MAX_DIMENSIONS,
            "propertyNames": {
                "minLength": 1,
                "maxLength": MAX_NAME_BYTES,
                "not": { "enum": ["caller", "procedure"] },
            },
            "additionalProperties": reference("patterns"),
        }),
        Shape::Limit => reference("limit"),
        Shape::Window => json!({ "type": "string", "pattern": "^[0-9]+(_[0-9]+)*(ms|s|m|h|d)$" }),
        Shape::Count(low, high) => json!({
            "anyOf": [
                { "type": "integer", "minimum": low, "maximum": high },
                { "type": "string", "pattern": "^[0-9]+(_[0-9]+)+$" },
            ],
        }),
        Shape::Per => json!({
            "type": "array",
            "minItems": 1,
            "maxItems": Per::MAX_DIMENSIONS,
            "uniqueItems": true,
            "items": of(Shape::Name),
        }),
        Shape::Values => json!({
            "anyOf": [
                {
                    "type": "object",
                    "maxProperties": MAX_VALUES,
                    "propertyNames": { "not": { "const": "*" } },
                    "additionalProperties": reference("standingLimit"),
                },
                { "type": "array", "maxItems": MAX_VALUES, "items": reference("value") },
            ],
        }),
        Shape::ValueNames => json!({
            "type": "object",
            "minProperties": 1,
            "maxProperties": Per::MAX_DIMENSIONS,
            "additionalProperties": { "type": ["string", "number", "boolean"] },
        }),
        Shape::Overflow => json!({
            "anyOf": [{ "const": "observe" }, reference("standingLimit")],
        }),
        Shape::Share => json!({
            "anyOf": [
                { "type": "number", "exclusiveMinimum": 0, "maximum": 1 },
                { "type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?%?$" },
            ],
        }),
        Shape::Priority => reference("priority"),
        Shape::Classes => json!({
            "type": "array",
            "minItems": 2,
            "maxItems": Classes::MAX,
            "uniqueItems": true,
            "items": reference("class"),
        }),
        Shape::Class => reference("class"),
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

fn one_or_many(reference: &str, most: usize) -> Value {
    json!({
        "anyOf": [
            { "$ref": reference },
            { "type": "array", "minItems": 1, "maxItems": most, "items": { "$ref": reference } },
        ],
    })
}
