//! Asks a generator for cases.

use std::fmt::Write as _;

use tokio::sync::mpsc;
use tonic::Code;

use super::agent::{Agent, MAX_MESSAGE_BYTES, traced};
use super::output::Output;
use super::party::{Belongs, Silence};
use super::stream::EVENT_OVERHEAD;
use crate::conversation::{AgentCard, MaybeJson};
use crate::json::{Json, Value, write_string};
use crate::limits::CALL_BYTES;
use crate::suite::framework::cases_in;
use crate::wire::agent as pb;
use crate::wire::agent::generate_response::Item;
use crate::wire::agent::generator_client::GeneratorClient;
use crate::wire::call::card_to_proto;
use crate::wire::party::options_to_proto;
use crate::wire::value::json_from_proto;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Most cases.
    pub count: u32,
    /// What they shall be about; may be empty.
    pub focus: String,
    /// The name of the agent under test.
    pub target_agent: String,
    /// The agent under test as it describes itself; `None` when it could not be asked.
    pub target: Option<AgentCard>,
    /// What else the generator is told.
    pub params: Vec<(String, Json)>,
    /// Ids that are taken.
    pub existing: Vec<String>,
}

impl Wanted {
    /// The options of the call: `metadata` as Agent Test Framework V2 has it.
    fn options(&self) -> Json {
        let node = |value| Json { line: 0, value };
        let text = |text: &str| node(Value::String(text.to_owned()));
        let mut metadata = vec![
            ("test_mode".to_owned(), text("generator")),
            ("target_agent".to_owned(), text(&self.target_agent)),
            ("count".to_owned(), node(Value::Number(self.count.to_string()))),
        ];
        if !self.focus.is_empty() {
            metadata.push(("focus".to_owned(), text(&self.focus)));
        }
        let is_new = |key: &String| !["test_mode", "target_agent", "count", "focus"].contains(&key.as_str());
        metadata.extend(self.params.iter().filter(|(key, _)| is_new(key)).cloned());
        node(Value::Object(vec![("metadata".to_owned(), node(Value::Object(metadata)))]))
    }

    /// What a plain agent is asked.
    fn question(&self) -> String {
        let mut out = String::from("{\"target_agent\": ");
        write_string(&self.target_agent, &mut out);
        let _ = write!(out, ", \"count\": {}, \"focus\": ", self.count);
        write_string(&self.focus, &mut out);
        out.push_str(", \"tools\": [");
        for (index, tool) in self.target.iter().flat_map(|card| &card.tools).enumerate() {
            out.push_str(if index > 0 { ", {\"name\": " } else { "{\"name\": " });
            write_string(&tool.name, &mut out);
            out.push_str(", \"description\": ");
            write_string(&tool.description, &mut out);
            out.push('}');
        }
        out.push_str("]}");
        out
    }
}

/// How the generator ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Generated {
    /// Cases that it wrote.
    pub produced: u32,
    /// Cases that it says it threw away.
    pub discarded: u32,
}

impl Agent {
    /// Asks for cases and passes each on as soon as it is there, as the text that came. Ends early when nobody
    /// takes them.
    ///
    /// # Errors
    /// Why the generator did not come to its end; what came before has been passed on.
    pub async fn generate(
        &self,
        belongs: &Belongs,
        wanted: &Wanted,
        cases: &mpsc::Sender<String>,
    ) -> Result<Generated, Silence> {
        let asked = self.generate_within(belongs, wanted, cases);
        tokio::select! {
            () = cases.closed() => Ok(Generated::default()),
            ended = tokio::time::timeout_at(belongs.deadline, asked) => ended.unwrap_or(Err(Silence::Timeout)),
        }
    }

    async fn generate_within(
        &self,
        belongs: &Belongs,
        wanted: &Wanted,
        cases: &mpsc::Sender<String>,
    ) -> Result<Generated, Silence> {
        let mut client = GeneratorClient::new(self.channel()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let options = wanted.options();
        let request = pb::GenerateRequest {
            context: Some(self.context(belongs)),
            count: wanted.count,
            focus: wanted.focus.clone(),
            target: wanted.target.as_ref().map(card_to_proto),
            options: Some(options_to_proto(&options)),
            existing_case_ids: wanted.existing.clone(),
            suite_schema: String::new(),
        };
        let mut stream = match client.generate(traced(request, &belongs.trace)).await {
            Ok(stream) => stream.into_inner(),
            Err(status) if status.code() == Code::Unimplemented => {
                return self.generate_by_invoke(belongs, wanted, &options, cases).await;
            }
            Err(status) => return Err(self.failed(&status)),
        };
        let mut budget = Budget::new(belongs, wanted.count);
        loop {
            let message = match stream.message().await {
                Ok(Some(message)) => message,
                Ok(None) => return Err(Silence::Failed("its stream ended without a summary".to_owned())),
                Err(status) if status.code() == Code::Unimplemented && budget.produced == 0 => {
                    return self.generate_by_invoke(belongs, wanted, &options, cases).await;
                }
                Err(status) => return Err(self.failed(&status)),
            };
            budget.count(prost::Message::encoded_len(&message))?;
            match message.item {
                Some(Item::Case(case)) => {
                    let text = match json_from_proto(Some(case)) {
                        Some(MaybeJson::Json(text)) => text.as_str().to_owned(),
                        Some(MaybeJson::Malformed(text)) => text,
                        None => String::new(),
                    };
                    if !budget.take(text, cases).await? {
                        // It was told how many are wanted.
                        return Ok(Generated { produced: budget.produced, discarded: 0 });
                    }
                }
                Some(Item::Summary(summary)) if summary.produced == budget.produced => {
                    return Ok(Generated { produced: budget.produced, discarded: summary.discarded });
                }
                Some(Item::Summary(summary)) => {
                    let said = summary.produced;
                    let why = format!("it says that it sent {said} cases, and {} came", budget.produced);
                    return Err(Silence::Failed(why));
                }
                None => {}
            }
        }
    }

    /// A plain agent writes all cases in one answer.
    async fn generate_by_invoke(
        &self,
        belongs: &Belongs,
        wanted: &Wanted,
        options: &Json,
        cases: &mpsc::Sender<String>,
    ) -> Result<Generated, Silence> {
        let answer = self.ask_plainly(belongs, &wanted.question(), options).await?.response;
        let found = cases_in(&answer);
        if found.is_empty() {
            let beginning: String = answer.chars().take(200).collect();
            return Err(Silence::Failed(format!("there are no cases in its answer: {beginning:?}")));
        }
        let mut budget = Budget::new(belongs, wanted.count);
        budget.count(answer.len())?;
        for case in found {
            if !budget.take(case.stringify(), cases).await? {
                break;
            }
        }
        Ok(Generated { produced: budget.produced, discarded: 0 })
    }
}

/// How much more is taken.
struct Budget {
    count: u32,
    produced: u32,
    bytes: usize,
    output: Output,
}

impl Budget {
    fn new(belongs: &Belongs, count: u32) -> Self {
        Self { count, produced: 0, bytes: 0, output: belongs.outputs.begin() }
    }

    /// Counts a message, also one that holds no case.
    fn count(&mut self, bytes: usize) -> Result<(), Silence> {
        self.bytes = self.bytes.saturating_add(bytes).saturating_add(EVENT_OVERHEAD);
        if self.bytes > CALL_BYTES {
            return Err(Silence::Failed(format!("it sent more than {CALL_BYTES} bytes")));
        }
        self.output.add(bytes).map_err(Silence::because)
    }

    /// Passes a case on; false: it is one too many, or nobody takes it.
    async fn take(&mut self, case: String, cases: &mpsc::Sender<String>) -> Result<bool, Silence> {
        if self.produced >= self.count {
            return Ok(false);
        }
        self.produced += 1;
        Ok(cases.send(case).await.is_ok())
    }
}
