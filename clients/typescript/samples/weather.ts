// A weather agent: current weather, forecast and air quality, from built-in data. The same as the Python sample, on
// the AI SDK.
//
// Run it with `npx tsx samples/weather.ts --listen 127.0.0.1:50051`.
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { crc32 } from "node:zlib";
import { ToolLoopAgent, tool } from "ai";
import { attach, serve } from "forge-daemon";
import { fromAiSdk } from "forge-daemon/ai";
import { z } from "zod";
import { type Call, modelOf, type Result } from "./rules.js";

const INSTRUCTIONS = `\
You answer questions about the weather. Look up current weather, forecasts and air quality with the tools; never make \
them up. Answer general questions about weather from what you know, without tools. Name the city, give temperatures \
with °, write plain sentences. You give no advice about anything but the weather.`;

// What the tools know.

/** Today's weather at a place. Numbers are made up, and never change. */
interface Place {
  celsius: number;
  condition: string;
  humidity: number;
  windKph: number;
  aqi: number;
}

const PLACES: Record<string, Place> = Object.fromEntries(
  (
    [
      ["Amsterdam", 13, "light rain", 81, 24, 38],
      ["Barcelona", 21, "sunny", 58, 14, 52],
      ["Beijing", 16, "hazy", 41, 11, 158],
      ["Berlin", 9, "cloudy", 72, 17, 44],
      ["Cairo", 29, "clear", 28, 19, 132],
      ["Chicago", 4, "windy with snow flurries", 66, 34, 41],
      ["Delhi", 27, "hazy", 55, 8, 217],
      ["London", 12, "overcast", 78, 20, 47],
      ["Madrid", 22, "sunny", 39, 10, 49],
      ["New York", 11, "partly cloudy", 57, 21, 55],
      ["Oslo", -3, "light snow", 84, 9, 22],
      ["Paris", 17, "partly cloudy", 63, 15, 58],
      ["Rome", 20, "clear", 52, 12, 61],
      ["San Francisco", 15, "foggy", 82, 18, 33],
      ["Seattle", 11, "rainy", 87, 16, 29],
      ["Singapore", 31, "thunderstorms", 85, 13, 67],
      ["Sydney", 24, "sunny", 49, 22, 31],
      ["Tokyo", 14, "clear", 47, 12, 63],
    ] as const
  ).map(([name, celsius, condition, humidity, windKph, aqi]) => [name, { celsius, condition, humidity, windKph, aqi }]),
);

/** What comes next: every place steps through this list, each from its own beginning. */
const CONDITIONS = ["sunny", "partly cloudy", "cloudy", "light rain", "rainy", "clear"];

/** The weather of a city; one that is not in the table has weather too, the same every time. */
function placeOf(city: string): Place {
  const wanted = city.trim().toLowerCase();
  const known = Object.entries(PLACES).find(([name]) => name.toLowerCase() === wanted);
  if (known) return known[1];
  const number = crc32(wanted);
  return {
    celsius: 5 + (number % 23),
    condition: condition(number),
    humidity: 35 + (number % 55),
    windKph: 5 + (number % 30),
    aqi: 20 + (number % 120),
  };
}

function condition(number: number): string {
  return CONDITIONS[number % CONDITIONS.length] as string;
}

type Units = "celsius" | "fahrenheit";

function degrees(celsius: number, units: Units): number {
  return units === "celsius" ? celsius : Math.round((celsius * 9) / 5 + 32);
}

// The tools.

const city = z.string();
const units = z.enum(["celsius", "fahrenheit"]).default("celsius");

/** The tools, each of which takes `delay` milliseconds. */
function tools(delay: number) {
  return {
    get_weather: tool({
      description: "Get the current weather of a city: temperature, condition, humidity and wind. Not for the future.",
      inputSchema: z.object({ city, units }),
      async execute({ city, units }, { abortSignal }) {
        await sleep(delay, undefined, { signal: abortSignal as AbortSignal });
        const { celsius, condition, humidity, windKph } = placeOf(city);
        return { city, temperature: degrees(celsius, units), units, condition, humidity, wind_kph: windKph };
      },
    }),
    get_forecast: tool({
      description: "Get the weather forecast of a city for the coming days, beginning tomorrow.",
      inputSchema: z.object({ city, days: z.int().default(3), units }),
      async execute({ city, days, units }, { abortSignal }) {
        await sleep(delay, undefined, { signal: abortSignal as AbortSignal });
        const { celsius } = placeOf(city);
        const first = crc32(city.toLowerCase());
        const coming = Array.from({ length: Math.min(Math.max(days, 1), 7) }, (_, index) => ({
          day: index === 0 ? "tomorrow" : `in ${index + 1} days`,
          condition: condition(first + index + 1),
          low: degrees(celsius - 4 + ((index + 1) % 2), units),
          high: degrees(celsius + 2 + ((index + 1) % 3), units),
        }));
        return { city, units, days: coming };
      },
    }),
    get_air_quality: tool({
      description: "Get the current air quality of a city: the AQI, what it means, and the main pollutant.",
      inputSchema: z.object({ city }),
      async execute({ city }, { abortSignal }) {
        await sleep(delay, undefined, { signal: abortSignal as AbortSignal });
        const { aqi } = placeOf(city);
        const levels = [
          [50, "good"],
          [100, "moderate"],
          [150, "unhealthy for sensitive groups"],
          [200, "unhealthy"],
        ] as const;
        const category = levels.find(([limit]) => aqi <= limit)?.[1] ?? "very unhealthy";
        return { city, aqi, category, main_pollutant: aqi > 50 ? "PM2.5" : "ozone" };
      },
    }),
  };
}

// The rules that stand in for a model: which tools to call.

const AIR = /\bair\b|\baqi\b|pollut|smog/i;
const FUTURE = /forecast|tomorrow|\bweek|coming days|next (few )?days|later|\btrip\b|travel/i;
const PRESENT = /right now|\bnow\b|current|today|outside|at the moment/i;
const WEATHER =
  /weather|temperature|degrees|conditions|it like|umbrella|\bcold|\bwarm|\bhot\b|rain|snow|sunn|cloud|fog|wind|humid/i;
const NAMED_PLACE = /\b(?:in|for|at|to|near|around|about)\s+((?:[A-Z][\w'’-]+)(?:\s[A-Z][\w'’-]+)*)/g;
const NOT_A_PLACE =
  /^(january|february|march|april|may|june|july|august|september|october|november|december|monday|tuesday|wednesday|thursday|friday|saturday|sunday|celsius|fahrenheit|i|aqi)$/i;

/** The cities that a text names, in its order. */
function cities(text: string): string[] {
  const known = Object.keys(PLACES)
    .map((name) => [text.search(new RegExp(`\\b${name}\\b`, "i")), name] as const)
    .filter(([at]) => at >= 0);
  if (known.length > 0) return known.toSorted(([a], [b]) => a - b).map(([, name]) => name);
  return [...text.matchAll(NAMED_PLACE)].map(([, name = ""]) => name).filter((name) => !NOT_A_PLACE.test(name));
}

/** The tools that a text asks for, whatever the city. */
function wantedTools(text: string): string[] {
  const isFuture = FUTURE.test(text);
  const isPresent = PRESENT.test(text) || (WEATHER.test(text) && !isFuture);
  const wanted = { get_weather: isPresent, get_forecast: isFuture, get_air_quality: AIR.test(text) };
  return Object.entries(wanted).flatMap(([name, isWanted]) => (isWanted ? [name] : []));
}

/** The calls that answer the latest text. "And in Oslo?" is understood from what was said before it. */
function choose(said: string[]): Call[] {
  const latest = said.at(-1) ?? "";
  const earlier = said.slice(0, -1).join(" ");
  let named = cities(latest);
  let asked = wantedTools(latest);
  if (asked.length === 0 && named.length > 0 && earlier !== "") asked = wantedTools(earlier);
  if (named.length === 0 && asked.length > 0 && !generalKnowledge(latest)) named = cities(earlier).slice(-1);
  const options = /fahrenheit/i.test(latest) ? { units: "fahrenheit" } : {};
  const days = /\bweek\b/i.test(latest) ? { days: 7 } : /tomorrow/i.test(latest) ? { days: 1 } : {};
  const further: Record<string, object> = { get_weather: options, get_forecast: { ...days, ...options } };
  return asked.flatMap((name) => named.map((city) => ({ tool: name, args: { city, ...further[name] } })));
}

// The rules that stand in for a model: what to say.

const KNOWLEDGE: [RegExp, string][] = [
  [
    /barometer/i,
    "A barometer measures the pressure of the atmosphere: air presses on mercury, or on a small sealed box, and shows how strongly. Falling pressure often means that bad weather is coming.",
  ],
  [
    /rainbow/i,
    "A rainbow appears when sunlight enters raindrops, is split into its colours, and is thrown back from their far side. You see it with the sun behind you.",
  ],
  [/humidity/i, "Humidity says how much water vapour the air holds, as a share of the most that it could hold."],
  [/dew point/i, "Below the dew point the air cannot hold its water vapour any longer, so that dew or fog forms."],
  [/wind ?chill/i, "Wind chill is how cold it feels: wind carries away the warm air around your skin."],
  [
    /\baqi\b|air quality index/i,
    "The AQI, the air quality index, puts the pollution of the air on one scale: up to 50 is good, above 150 is unhealthy for everybody.",
  ],
  [
    /thunder|lightning/i,
    "Lightning is a discharge between a charged cloud and the ground. It heats the air so fast that the air bursts outwards, and that is the thunder.",
  ],
  [/sky (is )?blue/i, "The sky is blue because air scatters the short, blue waves of sunlight more than long ones."],
];

/** What the rules know by heart about the subject of a text. */
function generalKnowledge(text: string): string | undefined {
  return KNOWLEDGE.find(([subject]) => subject.test(text))?.[1];
}

/** An answer from what the tools said, or without tools. */
function write(said: string[], results: Result[]): string {
  const latest = said.at(-1) ?? "";
  if (results.length > 0) return [verdict(latest, results), ...results.map(sentence)].filter(Boolean).join(" ");
  const known = generalKnowledge(latest);
  if (known) return known;
  if (WEATHER.test(latest) || wantedTools(latest).length > 0) {
    return "Which city do you mean? Tell me one, and I can look up its current weather, its forecast and its air quality. Anything but the weather is for somebody else to judge.";
  }
  return "I answer questions about the weather: name a city, or ask how something about the weather works.";
}

type Data = Record<string, unknown>;

const SUBJECTS: Record<string, string> = {
  get_weather: "the weather in",
  get_forecast: "the weather forecast for",
  get_air_quality: "the air quality in",
};
const FACTS: Record<string, (data: Data) => string> = { get_weather: now, get_forecast: coming, get_air_quality: air };

function sentence({ tool, args, data, error }: Result): string {
  const facts = isData(data) ? data : {};
  const subject = `${SUBJECTS[tool] ?? tool} ${facts.city || args.city || "that place"}`;
  if (error !== undefined) return `I could not get ${subject}: ${error}.`;
  return `${subject.charAt(0).toUpperCase()}${subject.slice(1)}: ${FACTS[tool]?.(facts) || asItIs(data)}.`;
}

function now(data: Data): string {
  return listed([
    "condition" in data ? String(data.condition) : "",
    "temperature" in data ? `a temperature of ${withUnits(data.temperature, data)}` : "",
    "humidity" in data ? `${data.humidity}% humidity` : "",
    "wind_kph" in data ? `wind at ${data.wind_kph} km/h` : "",
  ]);
}

function coming(data: Data): string {
  const days = data.days ?? data.forecast;
  const known = Array.isArray(days) ? days.filter(isData) : [];
  return known
    .map((day) => oneDay(day, data))
    .filter(Boolean)
    .join("; ");
}

function oneDay(day: Data, data: Data): string {
  const span = "low" in day && "high" in day ? `${withUnits(day.low, data)} to ${withUnits(day.high, data)}` : "";
  const facts = [day.condition ? String(day.condition) : "", span].filter(Boolean).join(", ");
  return facts ? `${day.day ?? day.date ?? ""} ${facts}`.trim() : "";
}

function air(data: Data): string {
  if (!("aqi" in data)) return "";
  const category = "category" in data ? ` (${data.category})` : "";
  return `AQI ${data.aqi}${category}${"main_pollutant" in data ? `, mainly ${data.main_pollutant}` : ""}`;
}

/** The facts of a result in a shape that the rules do not know. */
function asItIs(data: unknown): string {
  if (!isData(data)) return data === undefined || data === null || data === "" ? "no details were given" : String(data);
  const facts = Object.entries(data).filter(([key]) => key !== "city");
  return listed(facts.map(([key, value]) => `${key.replaceAll("_", " ")} ${value}`)) || "no details were given";
}

function withUnits(value: unknown, data: Data): string {
  return String(data.units ?? "")
    .toLowerCase()
    .startsWith("f")
    ? `${value}°F`
    : `${value}°C`;
}

function listed(facts: string[]): string {
  const given = facts.filter(Boolean);
  return given.length > 1 ? `${given.slice(0, -1).join(", ")} and ${given.at(-1)}` : (given[0] ?? "");
}

/** A word ahead, where the question wants a yes or a no. */
function verdict(question: string, results: Result[]): string {
  const text = results
    .flatMap(({ data, error }) => (error === undefined ? [JSON.stringify(data)] : []))
    .join(" ")
    .toLowerCase();
  if (text === "") return "";
  const isWet = /rain|shower|storm|drizzle|snow/.test(text);
  if (/umbrella/i.test(question))
    return isWet ? "Yes, take an umbrella." : "It looks dry, so you can leave your umbrella at home.";
  const asked = /\bis it (rain|snow|sunny|cloudy|foggy|windy)/i.exec(question)?.[1];
  return asked ? (text.includes(asked.toLowerCase()) ? "Yes." : "No.") : "";
}

function isData(value: unknown): value is Data {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

// The agent.

const { values } = parseArgs({
  options: {
    listen: { type: "string" },
    // The daemon to dial instead of listening, and the names under which.
    attach: { type: "string" },
    id: { type: "string", multiple: true },
    "tool-delay": { type: "string", default: "0" },
  },
});
const model = await modelOf("weather-rules", { choose, write });
const agent = new ToolLoopAgent({
  model,
  instructions: INSTRUCTIONS,
  tools: tools(Number(values["tool-delay"]) * 1000),
});
const served = fromAiSdk(agent, { id: "samples.weather", name: "Weather", version: "1.0.0" });
if (values.attach) await attach(served, values.attach, { ids: values.id });
else await serve(served, { listen: values.listen });
