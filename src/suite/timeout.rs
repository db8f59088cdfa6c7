//! Times as Agent Test Framework V2 writes them: Go's durations, such as `2m`, `1.5s` or `1h30m`.

use std::time::Duration;

/// Longest time; what is longer is taken for a mistake.
pub const MAX_TIMEOUT: Duration = Duration::from_hours(24);

/// What stands behind a number of milliseconds.
const MILLIS: &str = " ms";

/// A time for a case, and how it was written: messages repeat it that way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeout {
    /// How long.
    pub duration: Duration,
    /// As written.
    pub written: String,
}

impl Timeout {
    /// Reads a positive duration.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refuse = || format!("{text:?} is no duration; write it like 30s, 2m or 1h30m");
        let nanos = nanoseconds(text.strip_prefix('+').unwrap_or(text)).ok_or_else(refuse)?;
        if nanos == 0 {
            return Err(format!("{text:?} is no time at all"));
        }
        let duration = u64::try_from(nanos).map(Duration::from_nanos).ok().filter(|time| *time <= MAX_TIMEOUT);
        let duration = duration.ok_or_else(|| format!("{text:?} is longer than a day"))?;
        Ok(Self { duration, written: text.to_owned() })
    }
}

impl Timeout {
    /// A number of milliseconds, as the settings of the Eval Runner Contract have it; `None`: it is not positive,
    /// or more than [`MAX_TIMEOUT`].
    #[must_use]
    pub fn of_millis(millis: f64) -> Option<Self> {
        let duration = Duration::try_from_secs_f64(millis / 1000.0).ok()?;
        let is_in_range = !duration.is_zero() && duration <= MAX_TIMEOUT;
        is_in_range.then(|| Self { duration, written: format!("{millis}{MILLIS}") })
    }

    /// The time that a text says which stands in messages: a duration, or a number of milliseconds.
    #[must_use]
    pub fn of_written(text: &str) -> Option<Duration> {
        let timeout = match text.strip_suffix(MILLIS) {
            Some(millis) => Self::of_millis(millis.parse().ok()?),
            None => Self::parse(text).ok(),
        };
        timeout.map(|timeout| timeout.duration)
    }
}

/// The sum of numbers with units, each unit as often as you like.
fn nanoseconds(text: &str) -> Option<u128> {
    if text.is_empty() {
        return None;
    }
    let mut rest = text;
    let mut sum: u128 = 0;
    while !rest.is_empty() {
        let number = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        let (number, behind) = rest.split_at(number);
        let unit = behind.len() - behind.trim_start_matches(|c: char| c.is_alphabetic()).len();
        let (unit, behind) = behind.split_at(unit);
        let unit: u128 = match unit {
            "ns" => 1,
            // The sign for micro is two characters that look the same.
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || number.len() > 18 {
            return None;
        }
        let digits = |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse::<u128>().ok() };
        let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
        sum = sum.checked_add(digits(whole)? * unit + digits(fraction)? * unit / scale)?;
        rest = behind;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_worded_as_they_were_written() {
        for (millis, written) in
            [(60_000.0, Some("60000 ms")), (1.5, Some("1.5 ms")), (0.0, None), (-1.0, None), (1e9, None)]
        {
            let timeout = Timeout::of_millis(millis);
            assert_eq!(timeout.as_ref().map(|timeout| timeout.written.as_str()), written, "{millis}");
            if let Some(timeout) = timeout {
                assert_eq!(Timeout::of_written(&timeout.written), Some(timeout.duration));
            }
        }
        for (text, seconds) in
            [("2m", Some(120)), ("60000 ms", Some(60)), ("60000ms", Some(60)), ("60", None), ("x ms", None)]
        {
            assert_eq!(Timeout::of_written(text), seconds.map(Duration::from_secs), "{text}");
        }
        assert!(Timeout::of_millis(f64::NAN).is_none() && Timeout::of_millis(f64::INFINITY).is_none());
    }

    #[test]
    fn durations_of_go() {
        for (text, micros) in [
            ("2m", 120_000_000),
            ("1h2m3s4ms", 3_723_004_000),
            ("1.5s", 1_500_000),
            (".5s", 500_000),
            ("1.s", 1_000_000),
            ("+1500us", 1_500),
            ("3µs", 3),
            ("24h", 86_400_000_000),
        ] {
            let read = Timeout::parse(text).map(|timeout| timeout.duration);
            assert_eq!(read, Ok(Duration::from_micros(micros)), "{text}");
        }
        for wrong in [
            "",
            "+",
            "0",
            "0s",
            "-1s",
            "30",
            "1d",
            "5 m",
            "5M",
            "s",
            ".s",
            "1..5s",
            "1e3s",
            "25h",
            "99999999999999999999h",
        ] {
            assert!(Timeout::parse(wrong).is_err(), "{wrong}");
        }
    }
}
