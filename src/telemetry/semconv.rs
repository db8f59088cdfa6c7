//! Every name that leaves the daemon as telemetry.
//!
//! The `gen_ai.*` names are those of OpenTelemetry's GenAI conventions, which are all still in development and
//! move: who changes one here changes what people's dashboards look for. Where two states of them differ,
//! [`Conventions`] decides. Names that begin with `forge.` are ours.

/// A state of the GenAI conventions.
///
/// What differs between them is in their own guide to migration, as far as it is exported here:
/// <https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/non-normative/migration.md>.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Conventions {
    /// The last one that was published with the main conventions, which receivers know.
    #[default]
    V1_41,
    /// That of <https://github.com/open-telemetry/semantic-conventions-genai> in 2026-11, which has no version yet.
    Latest,
}

impl Conventions {
    /// The state of that name, as the configuration writes it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "1.41" => Some(Self::V1_41),
            "latest" => Some(Self::Latest),
            _ => None,
        }
    }

    /// What `OTEL_SEMCONV_STABILITY_OPT_IN`, a list of words, asks for; `None`: nothing that concerns these names.
    #[must_use]
    pub fn opted_in() -> Option<Self> {
        let words = std::env::var("OTEL_SEMCONV_STABILITY_OPT_IN").ok()?;
        words.split(',').any(|word| word.trim() == "gen_ai_latest_experimental").then_some(Self::Latest)
    }

    /// The schema that the names are of; `None`: there is none yet.
    #[must_use]
    pub const fn schema_url(self) -> Option<&'static str> {
        match self {
            Self::V1_41 => Some("https://opentelemetry.io/schemas/1.41.0"),
            Self::Latest => None,
        }
    }

    /// Tokens written to a cache.
    #[must_use]
    pub const fn usage_cache_write(self) -> &'static str {
        match self {
            Self::V1_41 => "gen_ai.usage.cache_creation.input_tokens",
            Self::Latest => "gen_ai.usage.cache_write.input_tokens",
        }
    }

    /// Whether each message of an answer says why it ended, besides [`RESPONSE_FINISH_REASONS`].
    #[must_use]
    pub const fn has_finish_reason_in_messages(self) -> bool {
        matches!(self, Self::V1_41)
    }
}
/// The instrumentation scope.
pub const SCOPE: &str = "forge";

// Spans. Names of spans hold nothing of which there are many.

/// Span of a run.
pub const SPAN_RUN: &str = "test_suite_run";
/// Span of an attempt at a case.
pub const SPAN_CASE: &str = "test_case";
/// Span of a turn of a dialogue.
pub const SPAN_TURN: &str = "forge.turn";

// Runs and cases.

/// Name of the suite; of several, one after the other.
pub const TEST_SUITE_NAME: &str = "test.suite.name";
/// `success`, `failure`, `aborted`.
pub const TEST_SUITE_RUN_STATUS: &str = "test.suite.run.status";
/// Id of a case within its suite.
pub const TEST_CASE_NAME: &str = "test.case.name";
/// `pass` or `fail`; what came of other cases has no standard word.
pub const TEST_CASE_RESULT_STATUS: &str = "test.case.result.status";
/// Id of the run.
pub const RUN_ID: &str = "forge.run.id";
/// SHA-256 of the run's bundle.
pub const BUNDLE_SHA256: &str = "forge.bundle.sha256";
/// Final state of the run.
pub const RUN_STATE: &str = "forge.run.state";
/// Id of the case.
pub const CASE_ID: &str = "forge.case.id";
/// File of the case.
pub const CASE_SUITE: &str = "forge.case.suite";
/// `single`, `stubbed`, `dynamic` or `test`.
pub const CASE_MODE: &str = "forge.case.mode";
/// Attempt, from 1.
pub const CASE_ATTEMPT: &str = "forge.case.attempt";
/// Repetition, from 1.
pub const CASE_REPEAT: &str = "forge.case.repeat";
/// What came of the case, in Forge's words.
pub const CASE_OUTCOME: &str = "forge.case.outcome";
/// Why it did not pass.
pub const CASE_CAUSE: &str = "forge.case.cause";
/// Who is to blame.
pub const CASE_BLAME: &str = "forge.case.blame";
/// What the agent said was recorded in an earlier run.
pub const REPLAYED: &str = "forge.replayed";
/// Number of the turn, from 1.
pub const TURN_NUMBER: &str = "forge.turn.number";

// Calls.

/// What is done: one of the `OPERATION_…` values.
pub const OPERATION_NAME: &str = "gen_ai.operation.name";
/// An agent is called.
pub const OPERATION_INVOKE_AGENT: &str = "invoke_agent";
/// A model is called.
pub const OPERATION_CHAT: &str = "chat";
/// A tool is called.
pub const OPERATION_EXECUTE_TOOL: &str = "execute_tool";
/// An answer is judged. Proposed for the conventions, not in them.
pub const OPERATION_EVALUATION: &str = "evaluation";
/// Who provides the model; required.
pub const PROVIDER_NAME: &str = "gen_ai.provider.name";
/// What stands there when an agent does not say.
pub const PROVIDER_FORGE: &str = "forge";
/// Id of an agent.
pub const AGENT_ID: &str = "gen_ai.agent.id";
/// Name of an agent.
pub const AGENT_NAME: &str = "gen_ai.agent.name";
/// Version of an agent.
pub const AGENT_VERSION: &str = "gen_ai.agent.version";
/// What an agent is for.
pub const AGENT_DESCRIPTION: &str = "gen_ai.agent.description";
/// Ties the turns of a case together.
pub const CONVERSATION_ID: &str = "gen_ai.conversation.id";
/// The model that is asked for.
pub const REQUEST_MODEL: &str = "gen_ai.request.model";
/// The model that answered.
pub const RESPONSE_MODEL: &str = "gen_ai.response.model";
/// The provider's id of an answer of a model.
pub const RESPONSE_ID: &str = "gen_ai.response.id";
/// Why a model or an agent ended its answer.
pub const RESPONSE_FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
/// Tokens read.
pub const USAGE_INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// Tokens written.
pub const USAGE_OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// Tokens read from a cache.
pub const USAGE_CACHE_READ: &str = "gen_ai.usage.cache_read.input_tokens";
/// Tokens of reasoning.
pub const USAGE_REASONING: &str = "gen_ai.usage.reasoning.output_tokens";
/// Host of the agent.
pub const SERVER_ADDRESS: &str = "server.address";
/// Port of the agent.
pub const SERVER_PORT: &str = "server.port";
/// What kind of error it was.
pub const ERROR_TYPE: &str = "error.type";
/// `live`, `stub` or `routing_only`.
pub const TOOL_MODE: &str = "forge.tool_mode";
/// Id of the call, as the agent got it.
pub const INVOCATION_ID: &str = "forge.invocation.id";
/// `simulator` or `validator`.
pub const ROLE: &str = "forge.role";
/// How an agent is spoken to: `grpc` or `http`.
pub const TRANSPORT: &str = "forge.transport";

// The RPC below a call. Names of the RPC conventions, a release candidate.

/// Which system of RPC.
pub const RPC_SYSTEM: &str = "rpc.system.name";
/// What stands there.
pub const RPC_SYSTEM_GRPC: &str = "grpc";
/// Service and method.
pub const RPC_METHOD: &str = "rpc.method";
/// The method by which agents are called, which is the name of the span, too.
pub const RPC_INVOKE: &str = "forge.agent.v1.AgentEndpoint/Invoke";
/// The status that it ended with, by name, such as `OK`.
pub const RPC_STATUS: &str = "rpc.response.status_code";

// Tools.

/// Name of a tool.
pub const TOOL_NAME: &str = "gen_ai.tool.name";
/// Id of a tool call.
pub const TOOL_CALL_ID: &str = "gen_ai.tool.call.id";
/// Kind of a tool, such as `function`.
pub const TOOL_TYPE: &str = "gen_ai.tool.type";
/// The kind of a tool that does not say.
pub const TOOL_TYPE_FUNCTION: &str = "function";
/// What a tool is for.
pub const TOOL_DESCRIPTION: &str = "gen_ai.tool.description";
/// What a tool was given; content.
pub const TOOL_CALL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
/// What it answered; content.
pub const TOOL_CALL_RESULT: &str = "gen_ai.tool.call.result";
/// `agent` or `stub`: who answered; `span`: the call was read from a span of the agent.
pub const TOOL_SOURCE: &str = "forge.tool.source";

// Content, which is there only if it was asked for.

/// What the agent was sent, as JSON of the conventions' schema.
pub const INPUT_MESSAGES: &str = "gen_ai.input.messages";
/// What it answered.
pub const OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
/// What it was told besides the conversation: whom to play, or what to judge by. System messages of a case stand in the
/// conversation, where the agent gets them.
pub const SYSTEM_INSTRUCTIONS: &str = "gen_ai.system_instructions";
/// The tools that an agent declares.
pub const TOOL_DEFINITIONS: &str = "gen_ai.tool.definitions";
/// All attributes that hold content.
pub const CONTENT: [&str; 6] =
    [INPUT_MESSAGES, OUTPUT_MESSAGES, SYSTEM_INSTRUCTIONS, TOOL_DEFINITIONS, TOOL_CALL_ARGUMENTS, TOOL_CALL_RESULT];
/// Content of an attempt was left out, as there was too much.
pub const CONTENT_LEFT_OUT: &str = "forge.content.left_out";
/// The log record that holds the content of a span, structured.
pub const EVENT_DETAILS: &str = "gen_ai.client.inference.operation.details";

// Evaluations.

/// What came of an assertion, a checkpoint or a validator.
pub const EVENT_EVALUATION: &str = "gen_ai.evaluation.result";
/// Id of the validator or script, else name of the assertion, or id of the checkpoint; required.
pub const EVALUATION_NAME: &str = "gen_ai.evaluation.name";
/// How well the answer does, from 0 to 1.
pub const EVALUATION_SCORE: &str = "gen_ai.evaluation.score.value";
/// `pass`, `fail` or `skip`; `error` if it could not be judged.
pub const EVALUATION_LABEL: &str = "gen_ai.evaluation.score.label";
/// Why.
pub const EVALUATION_EXPLANATION: &str = "gen_ai.evaluation.explanation";
/// Type of the assertion, such as `contains` or `agent`; `checkpoint` for a checkpoint as a whole.
pub const ASSERTION_TYPE: &str = "forge.assertion.type";

// Events of spans.

/// The daemon answered a tool call.
pub const EVENT_STUB_SERVED: &str = "forge.stub_served";
/// The daemon asked the agent to end the call.
pub const EVENT_CANCEL: &str = "forge.cancel";
/// The case is tried again.
pub const EVENT_RETRY: &str = "forge.retry";
/// Something worth knowing.
pub const EVENT_WARNING: &str = "forge.warning";
/// A checkpoint was reached.
pub const EVENT_CHECKPOINT: &str = "forge.checkpoint_reached";
/// The text of an event.
pub const MESSAGE: &str = "forge.message";
/// Why it happened, in one of few words.
pub const REASON: &str = "forge.reason";
/// Id of a checkpoint.
pub const CHECKPOINT_ID: &str = "forge.checkpoint.id";

// Metrics.

/// Processes that are attached.
pub const METRIC_ATTACHED: &str = "forge.attach.instances";
/// Processes that dialled the daemon to attach.
pub const METRIC_ATTACHES: &str = "forge.attach.count";
/// Processes that are no longer attached.
pub const METRIC_DETACHES: &str = "forge.detach.count";
/// Runs that ended, by state.
pub const METRIC_RUNS: &str = "forge.run.count";
/// Runs that go on.
pub const METRIC_RUNS_ACTIVE: &str = "forge.run.active";
/// Time from the creation of a run to its beginning.
pub const METRIC_RUN_WAIT: &str = "forge.run.wait.duration";
/// Cases that ended, by outcome and cause.
pub const METRIC_CASES: &str = "forge.case.count";
/// Time that cases took.
pub const METRIC_CASE_DURATION: &str = "forge.case.duration";
/// Time that calls took. The conventions have such a metric on the agent's own side only,
/// `gen_ai.invoke_agent.duration`.
pub const METRIC_CALL_DURATION: &str = "gen_ai.client.invoke_agent.duration";
/// Time until events were stored.
pub const METRIC_STORE_DURATION: &str = "forge.store.write.duration";
/// Spans that were exported.
pub const METRIC_SPANS_EXPORTED: &str = "forge.spans.exported";
/// Spans that were lost on the way out.
pub const METRIC_SPANS_DROPPED: &str = "forge.spans.dropped";
/// Spans that wait.
pub const METRIC_SPANS_WAITING: &str = "forge.spans.waiting";
/// Log records that were exported.
pub const METRIC_RECORDS_EXPORTED: &str = "forge.log_records.exported";
/// Log records that were lost on the way out.
pub const METRIC_RECORDS_DROPPED: &str = "forge.log_records.dropped";
/// Spans that came in.
pub const METRIC_SPANS_RECEIVED: &str = "forge.spans.received";

// What others' spans are read by.

/// Kind of a span of OpenInference.
pub const OPENINFERENCE_KIND: &str = "openinference.span.kind";
/// The kind of tool calls.
pub const OPENINFERENCE_TOOL: &str = "TOOL";
/// Name of the tool, there.
pub const OPENINFERENCE_TOOL_NAME: &str = "tool.name";
/// Id of the tool call, there.
pub const OPENINFERENCE_TOOL_ID: &str = "tool_call.id";
/// Id of the call in some of its instrumentations, of the tool in its own words.
pub const OPENINFERENCE_TOOL_OWN_ID: &str = "tool.id";
/// Arguments, or the schema of the tool, there: JSON text of an object.
pub const OPENINFERENCE_TOOL_PARAMETERS: &str = "tool.parameters";
/// What begins the names of what a model answered, there.
pub const OPENINFERENCE_ANSWERS: &str = "llm.output_messages.";
/// What a span was given, there.
pub const OPENINFERENCE_INPUT: &str = "input.value";
/// What it gave.
pub const OPENINFERENCE_OUTPUT: &str = "output.value";
/// What a span of the AI SDK (Vercel) is about.
pub const AI_OPERATION: &str = "ai.operationId";
/// There: a tool call.
pub const AI_TOOL_CALL: &str = "ai.toolCall";
/// Name of the tool, there.
pub const AI_TOOL_NAME: &str = "ai.toolCall.name";
/// Id of the call, there.
pub const AI_TOOL_ID: &str = "ai.toolCall.id";
/// Arguments, there: JSON text. Left out, with the results, where outputs are not recorded.
pub const AI_TOOL_ARGS: &str = "ai.toolCall.args";
/// What the tool gave, there: JSON text.
pub const AI_TOOL_RESULT: &str = "ai.toolCall.result";
/// Arguments in a span of Google's Agent Development Kit, as long as it does not follow the GenAI conventions.
pub const ADK_TOOL_ARGS: &str = "gcp.vertex.agent.tool_call_args";
/// What the tool gave, there.
pub const ADK_TOOL_RESPONSE: &str = "gcp.vertex.agent.tool_response";
/// The tool of a span over several calls, there, each of which has a span of its own.
pub const ADK_MERGED: &str = "(merged tools)";
/// What stands there for an id or an answer that it does not know.
pub const ADK_NOTHING: &str = "<not specified>";
