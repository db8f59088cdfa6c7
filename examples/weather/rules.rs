//! What stands in for a model and its data: the same answers every time.

/// The tools, each with the words that ask for it.
pub(crate) const TOOLS: [(&str, &str); 3] = [
    ("get_weather", "weather cold warm raining temperature conditions outside"),
    ("get_forecast", "forecast tomorrow trip"),
    ("get_air_quality", "air aqi"),
];

/// The calls that answer a question: tool and city.
pub(crate) fn calls(question: &str) -> Vec<(&'static str, String)> {
    let asked = question.to_lowercase();
    let mut words = asked.split(|c: char| !c.is_alphabetic());
    let asks = |about: &str| words.clone().any(|word| about.split(' ').any(|begin| word.starts_with(begin)));
    let tools: Vec<&str> = TOOLS.iter().filter(|(_, about)| asks(about)).map(|(tool, _)| *tool).collect();
    // General knowledge takes no tool.
    if words.any(|word| word == "why") {
        return Vec::new();
    }
    tools.into_iter().flat_map(|tool| cities(question).into_iter().map(move |city| (tool, city))).collect()
}

/// The cities that a question names: what begins with a capital behind "in", "for" or "to".
fn cities(question: &str) -> Vec<String> {
    let words: Vec<&str> = question.split_whitespace().collect();
    let places = words.iter().zip(1..).filter(|(word, _)| ["in", "for", "to"].contains(*word));
    let names = places.map(|(_, next)| {
        let capitals = words[next..].iter().take_while(|word| word.starts_with(char::is_uppercase));
        let name = capitals.copied().collect::<Vec<_>>().join(" ");
        name.split(|c: char| !c.is_alphabetic() && c != ' ').next().unwrap_or_default().to_owned()
    });
    names.filter(|name| !name.is_empty() && name != "Fahrenheit").collect()
}

/// What a tool gives, as JSON, and the sentence that a model would make of it.
pub(crate) fn look_up(tool: &str, city: &str, question: &str) -> (String, String) {
    let number = city.bytes().map(u32::from).sum::<u32>() % 40;
    let (degrees, unit) = if question.contains("Fahrenheit") { (30 + number, 'F') } else { (number / 2, 'C') };
    let (facts, sentence) = match tool {
        "get_weather" => (
            format!(r#""temperature":{degrees},"humidity":{number}"#),
            format!("The weather in {city}: {degrees}°{unit}, dry, {number}% humidity."),
        ),
        "get_forecast" => (
            format!(r#""tomorrow":{degrees}"#),
            format!("The weather forecast for {city}: {degrees}°{unit} and dry tomorrow."),
        ),
        _ => (format!(r#""aqi":{number}"#), format!("The air quality in {city}: AQI {number}.")),
    };
    (format!(r#"{{"city":"{city}",{facts}}}"#), sentence)
}

/// What is known without tools.
pub(crate) fn knowledge(question: &str) -> &'static str {
    match question {
        _ if question.contains("barometer") => "A barometer measures the pressure of the air.",
        _ if question.contains("rainbow") => "Raindrops split the light of the sun into its colours.",
        _ => "Which city do you mean?",
    }
}
