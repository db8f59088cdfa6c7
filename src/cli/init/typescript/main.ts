import { serve } from "forge-daemon";
import { agent } from "./agent.ts";

await serve(agent);
