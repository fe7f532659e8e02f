//! The JSON schema of configuration files.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::fields::{FILE, QUOTA, Shape, Table};

/// Returns the JSON schema (draft 7) of configuration files, for completion and validation in editors.
///
/// ```
/// let schema = serde_json::to_value(tollgate::config::schema())?;
/// assert_eq!(schema["properties"]["policies"]["additionalProperties"]["required"], serde_json::json!(["quota"]));
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// [`Config::read`](super::Config::read) checks more than the schema, for example whether each named policy exists. The
/// repository contains the schema as `docs/tollgate.schema.json`. To use it, begin a TOML file with `#:schema PATH`
/// (for Taplo) or a YAML file with `# yaml-language-server: $schema=PATH`.
pub fn schema() -> impl Serialize {
    let quota = || vec![Json::Object(of_type("string")), Json::Object(table(&QUOTA))];
    let mut quotas = quota();
    quotas.push(Json::Object(list(any_of(quota()))));
    let mut definition = vec![("description", Json::Text(QUOTAS))];
    definition.extend(any_of(quotas));

    let mut schema = vec![
        ("$schema", Json::Text("http://json-schema.org/draft-07/schema#")),
        ("title", Json::Text("tollgate limits")),
    ];
    schema.extend(table(&FILE));
    schema.push(("definitions", Json::Object(vec![("quotas", Json::Object(definition))])));
    Json::Object(schema)
}

type Object = Vec<(&'static str, Json)>;

enum Json {
    Bool(bool),
    Number(u64),
    Text(&'static str),
    List(Vec<Json>),
    Object(Object),
}

fn of_type(name: &'static str) -> Object {
    vec![("type", Json::Text(name))]
}

fn list(items: Object) -> Object {
    vec![("type", Json::Text("array")), ("items", Json::Object(items))]
}

fn any_of(choices: Vec<Json>) -> Object {
    vec![("anyOf", Json::List(choices))]
}

fn table(table: &Table) -> Object {
    let properties = table.fields.iter().map(|field| {
        let mut value = vec![("description", Json::Text(field.doc))];
        value.extend(shape(&field.shape));
        (field.name, Json::Object(value))
    });
    let required = table.fields.iter().filter(|field| field.required.is_some());
    let mut object = of_type("object");
    object.push(("properties", Json::Object(properties.collect())));
    object.push(("required", Json::List(required.map(|field| Json::Text(field.name)).collect())));
    object.push(("additionalProperties", Json::Bool(false)));
    object
}

fn shape(value: &Shape) -> Object {
    match value {
        Shape::Text => of_type("string"),
        Shape::Duration => vec![("type", Json::Text("string")), ("examples", Json::List(vec![Json::Text("10 min")]))],
        Shape::Boolean => of_type("boolean"),
        Shape::Integer => of_type("integer"),
        Shape::Number(min, max) => {
            vec![("type", Json::Text("integer")), ("minimum", Json::Number(*min)), ("maximum", Json::Number(*max))]
        }
        Shape::Share => {
            vec![("type", Json::Text("number")), ("minimum", Json::Number(0)), ("maximum", Json::Number(1))]
        }
        Shape::Word(words) => vec![("enum", Json::List(words.iter().map(|word| Json::Text(word)).collect()))],
        Shape::List(items) => list(shape(items)),
        Shape::Table(fields) => table(fields),
        Shape::Entries(value) => {
            vec![("type", Json::Text("object")), ("additionalProperties", Json::Object(shape(value)))]
        }
        Shape::OneOf(shapes) => any_of(shapes.iter().map(|choice| Json::Object(shape(choice))).collect()),
        // Draft 7 ignores the fields next to `$ref`, such as the description.
        Shape::Quotas => {
            vec![("allOf", Json::List(vec![Json::Object(vec![("$ref", Json::Text("#/definitions/quotas"))])]))]
        }
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Json::Bool(value) => serializer.serialize_bool(*value),
            Json::Number(number) => serializer.serialize_u64(*number),
            Json::Text(text) => serializer.serialize_str(text),
            Json::List(items) => serializer.collect_seq(items),
            Json::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                fields.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
                map.end()
            }
        }
    }
}

const QUOTAS: &str = "A quota such as \"10/s burst 50\", several such as \"10/s; 1000/d\", a table, or a list.";
