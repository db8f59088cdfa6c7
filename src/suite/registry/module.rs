//! One TypeScript or JavaScript file → what it imports, exports and binds, as plain data.
//!
//! The only module that knows the parser (oxc), whose types borrow from the text and change with every version. Nothing
//! is run: an expression is kept as far as a [`Barrel`](super::barrel) may want to read it, and is
//! [`Kind::Opaque`] from there on.
//!
//! The parser recurses without a limit and the text is hostile. So it runs in processes that may die of it, and in
//! those on a thread whose stack has room for what people write. And brackets may be nested
//! [`MAX_NESTING`](super::nesting) deep: the parser tries some of them twice, `({a=({a=…` takes the third power of
//! its depth.

use std::collections::HashMap;
use std::sync::Arc;

use oxc_allocator::Allocator;
use oxc_ast::ast::{
    Argument, ArrayExpressionElement, BinaryOperator, BindingPattern, Class, ClassElement, Declaration,
    ExportDefaultDeclarationKind, Expression, ImportDeclarationSpecifier, ImportOrExportKind, ObjectPropertyKind,
    Program, PropertyKey, PropertyKind, Statement, Str, UnaryOperator, VariableDeclaration, VariableDeclarationKind,
};
use oxc_parser::Parser;
use oxc_span::{GetSpan as _, SourceType, Span};

use super::nesting::Unreadable;
use crate::json::{Json, Value, without_mark};

/// Largest file in bytes.
pub(super) const MAX_BYTES: usize = 256 << 10;
/// Most tokens of one file.
const MAX_TOKENS: usize = 100_000;
/// Most `<`, each of which may make the parser look ahead to the end of the file.
const MAX_LESS_THAN: usize = 2_000;
/// Stack for one token. The most that was measured is 4 KiB, for `(` without optimisation.
const STACK_PER_TOKEN: usize = 8 << 10;
/// Most stack of a thread that parses.
const MAX_STACK: usize = 128 << 20;
/// Expressions nested deeper than this are not kept.
const MAX_DEPTH: usize = 96;

/// What a file imports, exports and binds.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// Local name → where it comes from.
    pub(super) imports: HashMap<String, Import>,
    /// What top-level names are bound to, if they are never bound again.
    pub(super) bindings: HashMap<String, Arc<Node>>,
    /// In the order of the text.
    pub(super) exports: Vec<Export>,
}

/// One imported name.
#[derive(Debug, Clone)]
pub(super) struct Import {
    pub(super) source: String,
    /// `default` for a default import; `None` for the whole module.
    pub(super) name: Option<String>,
    pub(super) line: u32,
}

/// One thing a file exports.
#[derive(Debug, Clone)]
pub(super) enum Export {
    /// A value of the file itself, under the name `default` also the default export.
    Value { name: String, value: Arc<Node>, line: u32 },
    /// `export { import as name } from …`, or `export * as name from …`.
    From { name: String, import: Import },
    /// `export * from …`.
    All { source: String, line: u32 },
}

/// An expression.
#[derive(Debug)]
pub(super) struct Node {
    /// Line on which it starts, counted from 1.
    pub(super) line: u32,
    /// First byte of it, which tells it from the others of its file.
    pub(super) start: u32,
    pub(super) kind: Kind,
}

/// What an expression is, without parentheses, `as`, `satisfies` and `!`.
#[derive(Debug)]
pub(super) enum Kind {
    Null,
    Bool(bool),
    /// A number as JSON writes it.
    Number(String),
    Text(String),
    /// Texts and other things, joined with `+` or inside a template.
    Joined(Vec<Arc<Node>>),
    Array(Vec<Item>),
    Object(Vec<Member>),
    /// Use of a name.
    Name(String),
    /// `object.key`.
    Member(Arc<Node>, String),
    /// A call, or `new`.
    Call(Arc<Node>, Vec<Item>),
    /// A function; never a tool, but what it returns might be.
    Function,
    /// Anything else, in words.
    Opaque(&'static str),
}

/// An element of a list or an argument.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) spread: bool,
    pub(super) value: Arc<Node>,
}

/// A member of an object or class.
#[derive(Debug)]
pub(super) struct Member {
    /// `None`: everything in `value` is spread out here, or the key is computed.
    pub(super) key: Option<String>,
    pub(super) value: Arc<Node>,
}

/// Reads a file; what `path` ends in says which language it is.
pub(super) fn read(path: &str, bytes: &[u8]) -> Result<Module, Unreadable> {
    let whole = |message: String| Unreadable { line: 0, message };
    if bytes.len() > MAX_BYTES {
        return Err(whole(format!("the file has {} bytes; {MAX_BYTES} are read at most", bytes.len())));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| whole("the file is not UTF-8 text".to_owned()))?;
    let text = without_mark(text);
    if path.to_ascii_lowercase().ends_with(".json") {
        let json = Json::parse(text)
            .map_err(|error| Unreadable { line: error.line, message: format!("not JSON: {}", error.message) })?;
        let value = from_json(&json);
        return Ok(Module {
            exports: vec![Export::Value { name: "default".to_owned(), value, line: json.line }],
            ..Module::default()
        });
    }
    let source_type = source_type(path);
    with_room(text, || parse(text, source_type))?
}

/// Reads a text with a parser that recurses without a limit: on a thread with room for it. Where no thread can be had,
/// as in a worker, this one has to do.
///
/// # Errors
/// When the brackets of the text are nested too deep, or it is too long.
pub(super) fn with_room<T: Send>(text: &str, read: impl Fn() -> T + Send + Sync) -> Result<T, Unreadable> {
    let whole = |message: String| Unreadable { line: 0, message };
    super::nesting::check(text)?;
    let tokens = most_tokens(text);
    let less_than = text.bytes().filter(|byte| *byte == b'<').count();
    if tokens > MAX_TOKENS || less_than > MAX_LESS_THAN {
        return Err(whole("the file is too long to be read".to_owned()));
    }
    let stack = ((1 << 20) + tokens * STACK_PER_TOKEN).min(MAX_STACK);
    std::thread::scope(|scope| {
        let parser = std::thread::Builder::new().name("parser".to_owned()).stack_size(stack);
        match parser.spawn_scoped(scope, &read) {
            Ok(parser) => parser.join().map_err(|_| whole("the parser failed on this file".to_owned())),
            Err(_) => Ok(read()),
        }
    })
}

fn source_type(path: &str) -> SourceType {
    let extension = path.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    match extension.as_str() {
        "tsx" => SourceType::tsx(),
        "js" | "mjs" | "cjs" => SourceType::mjs(),
        "jsx" => SourceType::jsx().with_module(true),
        _ => SourceType::ts(),
    }
}

/// No fewer than the tokens of a text: each byte that may start one is counted, also inside texts and comments.
fn most_tokens(text: &str) -> usize {
    let mut tokens = 0;
    let mut in_word = false;
    for byte in text.bytes() {
        let is_word = byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
        tokens += usize::from(if is_word { !in_word } else { byte.is_ascii_punctuation() });
        in_word = is_word;
    }
    tokens
}

fn parse(text: &str, source_type: SourceType) -> Result<Module, Unreadable> {
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, text, source_type).parse();
    let lines = Lines::new(text);
    if parsed.panicked {
        let first = parsed.diagnostics.iter().next();
        let label = first.and_then(|error| error.labels.first());
        let at = label.map_or(0, oxc_span::LabeledSpan::offset);
        return Err(Unreadable {
            line: lines.line(at),
            message: format!("not {}: {}", language(source_type), first.map_or("syntax error", |e| e.message.as_ref())),
        });
    }
    let mut reader =
        ModuleReader { lines, assignments: assignments(text), module: Module::default(), changing: Vec::new() };
    reader.program(&parsed.program);
    Ok(reader.module)
}

/// How often each name stands before `=`, `+=` and the like. Looks at words alone: what it counts too many only makes a
/// value unknown.
fn assignments(text: &str) -> HashMap<&str, u32> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    let mut counts = HashMap::new();
    let mut rest = text;
    let mut before = ' ';
    while let Some(start) = rest.find(is_word) {
        before = rest[..start].chars().next_back().unwrap_or(before);
        let word = &rest[start..];
        let (word, after) = word.split_at(word.find(|c| !is_word(c)).unwrap_or(word.len()));
        rest = after;
        let operator = after.trim_start();
        let equals = operator.trim_start_matches(['+', '-', '*', '/', '%', '&', '|', '^', '?', '<', '>']);
        if before != '.' && equals.starts_with('=') && !equals.starts_with("==") && !equals.starts_with("=>") {
            *counts.entry(word).or_default() += 1;
        }
        before = 'x';
    }
    counts
}

fn language(source_type: SourceType) -> &'static str {
    if source_type.is_typescript() { "TypeScript" } else { "JavaScript" }
}

/// Where the lines of a text start.
struct Lines(Vec<u32>);

impl Lines {
    fn new(text: &str) -> Self {
        let ends = text.bytes().zip(1u32..).filter(|(byte, _)| *byte == b'\n').map(|(_, next)| next);
        Self(std::iter::once(0).chain(ends).collect())
    }

    fn line(&self, offset: u32) -> u32 {
        u32::try_from(self.0.partition_point(|start| *start <= offset)).unwrap_or(u32::MAX)
    }
}

struct ModuleReader<'t> {
    lines: Lines,
    /// How often something seems to be assigned to a name.
    assignments: HashMap<&'t str, u32>,
    module: Module,
    /// Names that `let` and `var` bind, or that stand there twice: their value is not known.
    changing: Vec<String>,
}

impl ModuleReader<'_> {
    fn program(&mut self, program: &Program) {
        for statement in &program.body {
            match statement {
                Statement::ImportDeclaration(import) if import.import_kind == ImportOrExportKind::Value => {
                    for specifier in import.specifiers.iter().flatten() {
                        let (local, name) = match specifier {
                            ImportDeclarationSpecifier::ImportSpecifier(one) => {
                                (one.local.name.as_str(), Some(one.imported.name().as_str().to_owned()))
                            }
                            ImportDeclarationSpecifier::ImportDefaultSpecifier(one) => {
                                (one.local.name.as_str(), Some("default".to_owned()))
                            }
                            ImportDeclarationSpecifier::ImportNamespaceSpecifier(one) => {
                                (one.local.name.as_str(), None)
                            }
                        };
                        let source = import.source.value.as_str().to_owned();
                        let import = Import { source, name, line: self.line(import.span) };
                        self.module.imports.insert(local.to_owned(), import);
                    }
                }
                Statement::ExportDeclaration(export) => self.declaration(&export.declaration, true),
                Statement::ExportNamedDeclaration(export) if export.export_kind == ImportOrExportKind::Value => {
                    for one in export.specifiers.iter().filter(|one| one.export_kind == ImportOrExportKind::Value) {
                        let kind = Kind::Name(one.local.name().as_str().to_owned());
                        let value = self.node(one.span, kind);
                        self.export(one.exported.name().as_str(), value);
                    }
                }
                Statement::ExportFromDeclaration(export) if export.export_kind == ImportOrExportKind::Value => {
                    for one in export.specifiers.iter().filter(|one| one.export_kind == ImportOrExportKind::Value) {
                        let import = Import {
                            source: export.source.value.as_str().to_owned(),
                            name: Some(one.local.name().as_str().to_owned()),
                            line: self.line(one.span),
                        };
                        let name = one.exported.name().as_str().to_owned();
                        self.module.exports.push(Export::From { name, import });
                    }
                }
                Statement::ExportAllDeclaration(export) if export.export_kind == ImportOrExportKind::Value => {
                    let line = self.line(export.span);
                    let source = export.source.value.as_str().to_owned();
                    self.module.exports.push(match &export.exported {
                        None => Export::All { source, line },
                        Some(name) => {
                            let import = Import { source, name: None, line };
                            Export::From { name: name.name().as_str().to_owned(), import }
                        }
                    });
                }
                Statement::ExportDefaultDeclaration(export) => {
                    let value = match &export.declaration {
                        ExportDefaultDeclarationKind::FunctionDeclaration(function) => {
                            self.node(function.span, Kind::Function)
                        }
                        ExportDefaultDeclarationKind::ClassDeclaration(class) => self.class(class, 0),
                        ExportDefaultDeclarationKind::TSInterfaceDeclaration(_) => continue,
                        other => match other.as_expression() {
                            Some(expression) => self.expression(expression, 0),
                            None => continue,
                        },
                    };
                    self.export("default", value);
                }
                other => {
                    if let Some(declaration) = other.as_declaration() {
                        self.declaration(declaration, false);
                    }
                }
            }
        }
        for name in &self.changing {
            if let Some(value) = self.module.bindings.get_mut(name) {
                let kind = Kind::Opaque("a variable that may change");
                *value = Arc::new(Node { line: value.line, start: value.start, kind });
            }
        }
    }

    fn export(&mut self, name: &str, value: Arc<Node>) {
        let line = value.line;
        self.module.exports.push(Export::Value { name: name.to_owned(), value, line });
    }

    fn declaration(&mut self, declaration: &Declaration, exported: bool) {
        match declaration {
            Declaration::VariableDeclaration(variables) if !variables.declare => self.variables(variables, exported),
            Declaration::FunctionDeclaration(function) => {
                if let Some(id) = &function.id {
                    let value = self.node(function.span, Kind::Function);
                    self.bind(id.name.as_str(), value, exported);
                }
            }
            Declaration::ClassDeclaration(class) => {
                if let Some(id) = &class.id {
                    let value = self.class(class, 0);
                    self.bind(id.name.as_str(), value, exported);
                }
            }
            Declaration::TSEnumDeclaration(one) => {
                let value = self.node(one.span, Kind::Opaque("an enum"));
                self.bind(one.id.name.as_str(), value, exported);
            }
            _ => {}
        }
    }

    fn variables(&mut self, variables: &VariableDeclaration, exported: bool) {
        for one in &variables.declarations {
            let BindingPattern::BindingIdentifier(id) = &one.id else {
                if exported {
                    let value = self.node(one.span, Kind::Opaque("a destructuring pattern"));
                    self.export("(a pattern)", value);
                }
                continue;
            };
            let value = match &one.init {
                Some(init) => self.expression(init, 0),
                None => self.node(one.span, Kind::Opaque("a variable without a value")),
            };
            // Where nothing else is ever assigned, `let` and `var` are as good as `const`. With a type behind the
            // name the declaration itself does not look like an assignment.
            let name = id.name.as_str();
            let own = u32::from(one.init.is_some() && one.type_annotation.is_none());
            let is_const = variables.kind == VariableDeclarationKind::Const;
            if !is_const && self.assignments.get(name).is_some_and(|count| *count > own) {
                self.changing.push(name.to_owned());
            }
            self.bind(id.name.as_str(), value, exported);
        }
    }

    fn bind(&mut self, name: &str, value: Arc<Node>, exported: bool) {
        if exported {
            let kind = Kind::Name(name.to_owned());
            let used = Arc::new(Node { line: value.line, start: value.start, kind });
            self.export(name, used);
        }
        if self.module.bindings.insert(name.to_owned(), value).is_some() {
            self.changing.push(name.to_owned());
        }
    }

    fn line(&self, span: Span) -> u32 {
        self.lines.line(span.start)
    }

    fn node(&self, span: Span, kind: Kind) -> Arc<Node> {
        Arc::new(Node { line: self.line(span), start: span.start, kind })
    }

    fn expression(&self, expression: &Expression, depth: usize) -> Arc<Node> {
        let inner = expression.get_inner_expression();
        let span = inner.span();
        if depth > MAX_DEPTH {
            return self.node(span, Kind::Opaque("nested too deep"));
        }
        let kind = match inner {
            Expression::NullLiteral(_) => Kind::Null,
            Expression::BooleanLiteral(one) => Kind::Bool(one.value),
            Expression::NumericLiteral(one) => number(one.raw.as_ref().map(Str::as_str), one.value, false),
            Expression::UnaryExpression(one) => match (one.operator, one.argument.get_inner_expression()) {
                (UnaryOperator::UnaryNegation, Expression::NumericLiteral(one)) => {
                    number(one.raw.as_ref().map(Str::as_str), one.value, true)
                }
                _ => Kind::Opaque("an expression"),
            },
            // JSON text cannot hold half a surrogate pair, and neither can a description.
            Expression::StringLiteral(one) if !one.lone_surrogates => Kind::Text(one.value.as_str().to_owned()),
            Expression::TemplateLiteral(one) => {
                let mut pieces = Vec::new();
                let mut holes = one.expressions.iter();
                for quasi in &one.quasis {
                    match &quasi.value.cooked {
                        Some(cooked) if !quasi.lone_surrogates => {
                            pieces.push(self.node(quasi.span, Kind::Text(cooked.as_str().to_owned())));
                        }
                        _ => return self.node(span, Kind::Opaque("a template that is no text")),
                    }
                    pieces.extend(holes.next().map(|hole| self.expression(hole, depth + 1)));
                }
                Kind::Joined(pieces)
            }
            Expression::BinaryExpression(one) if one.operator == BinaryOperator::Addition => {
                // `a + b + c` leans to the left, as far as the author likes.
                let mut pieces = vec![self.expression(&one.right, depth + 1)];
                let mut left = one.left.get_inner_expression();
                while let Expression::BinaryExpression(next) = left
                    && next.operator == BinaryOperator::Addition
                {
                    pieces.push(self.expression(&next.right, depth + 1));
                    left = next.left.get_inner_expression();
                }
                pieces.push(self.expression(left, depth + 1));
                pieces.reverse();
                Kind::Joined(pieces)
            }
            Expression::ArrayExpression(one) => {
                let items = one.elements.iter().map(|element| match element {
                    ArrayExpressionElement::SpreadElement(spread) => {
                        Item { spread: true, value: self.expression(&spread.argument, depth + 1) }
                    }
                    other => {
                        let hole = || self.node(other.span(), Kind::Opaque("a hole"));
                        let value = other.as_expression().map_or_else(hole, |item| self.expression(item, depth + 1));
                        Item { spread: false, value }
                    }
                });
                Kind::Array(items.collect())
            }
            Expression::ObjectExpression(one) => {
                let members = one.properties.iter().map(|property| match property {
                    ObjectPropertyKind::SpreadProperty(spread) => {
                        Member { key: None, value: self.expression(&spread.argument, depth + 1) }
                    }
                    ObjectPropertyKind::ObjectProperty(property) => {
                        let is_value = property.kind == PropertyKind::Init && !property.method;
                        let value = if is_value {
                            self.expression(&property.value, depth + 1)
                        } else {
                            self.node(property.span, Kind::Function)
                        };
                        Member { key: key(&property.key, property.computed), value }
                    }
                });
                Kind::Object(members.collect())
            }
            Expression::Identifier(one) => match one.name.as_str() {
                "undefined" => Kind::Opaque("undefined"),
                name => Kind::Name(name.to_owned()),
            },
            Expression::StaticMemberExpression(one) => {
                Kind::Member(self.expression(&one.object, depth + 1), one.property.name.as_str().to_owned())
            }
            Expression::ComputedMemberExpression(one) => match one.expression.get_inner_expression() {
                Expression::StringLiteral(key) => {
                    Kind::Member(self.expression(&one.object, depth + 1), key.value.as_str().to_owned())
                }
                _ => Kind::Opaque("a computed member"),
            },
            Expression::CallExpression(one) => {
                Kind::Call(self.expression(&one.callee, depth + 1), self.arguments(&one.arguments, depth))
            }
            Expression::NewExpression(one) => {
                Kind::Call(self.expression(&one.callee, depth + 1), self.arguments(&one.arguments, depth))
            }
            Expression::ClassExpression(class) => return self.class(class, depth),
            Expression::ArrowFunctionExpression(_) | Expression::FunctionExpression(_) => Kind::Function,
            Expression::AwaitExpression(_) => Kind::Opaque("something that is awaited"),
            Expression::ConditionalExpression(_) | Expression::LogicalExpression(_) => Kind::Opaque("a choice"),
            _ => Kind::Opaque("an expression"),
        };
        self.node(span, kind)
    }

    fn arguments(&self, arguments: &[Argument], depth: usize) -> Vec<Item> {
        let items = arguments.iter().filter_map(|argument| match argument {
            Argument::SpreadElement(spread) => {
                Some(Item { spread: true, value: self.expression(&spread.argument, depth + 1) })
            }
            other => Some(Item { spread: false, value: self.expression(other.as_expression()?, depth + 1) }),
        });
        items.collect()
    }

    /// A class reads like an object of its fields: tools written as classes have `name = "…"` in them.
    fn class(&self, class: &Class, depth: usize) -> Arc<Node> {
        let members = class.body.body.iter().filter_map(|element| match element {
            ClassElement::PropertyDefinition(field) => {
                let value = self.expression(field.value.as_ref()?, depth + 1);
                Some(Member { key: key(&field.key, field.computed), value })
            }
            _ => None,
        });
        self.node(class.span, Kind::Object(members.collect()))
    }
}

/// The text of a key, if it has one.
fn key(key: &PropertyKey, computed: bool) -> Option<String> {
    match key {
        PropertyKey::StaticIdentifier(id) if !computed => Some(id.name.as_str().to_owned()),
        PropertyKey::StringLiteral(text) if !text.lone_surrogates => Some(text.value.as_str().to_owned()),
        PropertyKey::NumericLiteral(number) => Some(ryu_js::Buffer::new().format(number.value).to_owned()),
        _ => None,
    }
}

/// A number as JSON writes it: as it stands in the text where JSON can say it so.
fn number(raw: Option<&str>, value: f64, negative: bool) -> Kind {
    let sign = if negative { "-" } else { "" };
    let raw = raw.unwrap_or_default().replace('_', "");
    let written = format!("{sign}{raw}");
    if Json::parse(&written).is_ok() {
        return Kind::Number(written);
    }
    let written = format!("{sign}{}", ryu_js::Buffer::new().format(value));
    if Json::parse(&written).is_ok() { Kind::Number(written) } else { Kind::Opaque("a number that JSON has not") }
}

fn from_json(json: &Json) -> Arc<Node> {
    let kind = match &json.value {
        Value::Null => Kind::Null,
        Value::Bool(value) => Kind::Bool(*value),
        Value::Number(text) => Kind::Number(text.clone()),
        Value::String(text) => Kind::Text(text.clone()),
        Value::Array(items) => {
            Kind::Array(items.iter().map(|item| Item { spread: false, value: from_json(item) }).collect())
        }
        Value::Object(members) => Kind::Object(
            members.iter().map(|(key, value)| Member { key: Some(key.clone()), value: from_json(value) }).collect(),
        ),
    };
    Arc::new(Node { line: json.line, start: json.line, kind })
}
