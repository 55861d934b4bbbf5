// Made by `npm run types` from protocol.schema.json; changed there, not here.

export type JsonValue = unknown;

export interface Protocol {
  [k: string]: unknown;
}
/**
 * Is X the clip A or the clip B, and how sure is the listener.
 */
export interface Abx {
  a: Slot;
  b: Slot;
  id: string;
  kind: "abx";
  progress: number;
  question: string;
  teaching: boolean;
  x: Slot;
}
/**
 * A place with a clip in it: what the page calls it, and the name under which the clip is fetched.
 */
export interface Slot {
  audio: string;
  label: string;
}
export interface Agreed {
  agreed: boolean;
  kind: "consent";
}
/**
 * An answer to a screen. plays: how often each slot was played, by label.
 */
export interface Answer {
  given: Agreed | Read | Quietest | Word | Named | Matched | Told | Rated | Preferred | Filled;
  plays?: {
    [k: string]: number;
  };
  screen: string;
  seconds?: number;
}
export interface Read {
  kind: "notice" | "volume";
}
export interface Quietest {
  choice: number;
  kind: "headphones";
}
export interface Word {
  choice: string;
  kind: "attention";
}
export interface Named {
  choice: string;
  kind: "naming";
  naturalness: number;
}
export interface Matched {
  choice: "a" | "b";
  confidence: "low" | "medium" | "high";
  kind: "abx";
}
export interface Told {
  different: boolean;
  kind: "same-different";
}
/**
 * One rating for each slot of the screen, by its label.
 */
export interface Rated {
  kind: "mushra";
  ratings: {
    [k: string]: number;
  };
}
export interface Preferred {
  choice: "a" | "b";
  kind: "preference" | "closer";
}
export interface Filled {
  answers: {
    [k: string]: string | number;
  };
  kind: "questionnaire";
}
/**
 * Which word is heard in a sentence.
 */
export interface AttentionScreen {
  /**
   * @minItems 2
   * @maxItems 40
   */
  choices: string[];
  clip: Slot;
  id: string;
  kind: "attention";
  progress: number;
  question: string;
  teaching: boolean;
}
/**
 * Which of two clips is closer to the reference (2AFC).
 */
export interface Closer {
  a: Slot;
  b: Slot;
  id: string;
  kind: "closer";
  progress: number;
  question: string;
  reference: Slot;
  teaching: boolean;
}
export interface Consent {
  id: string;
  kind: "consent";
  progress: number;
  text: string;
  title: string;
}
/**
 * The end. code, link: what a listener needs to be paid, where the study says so.
 */
export interface Done {
  code: string | null;
  id: string;
  kind: "done";
  link: string | null;
  progress: number;
  text: string;
  title: string;
}
/**
 * What is said after a teaching trial.
 */
export interface Feedback {
  right: boolean;
  text: string;
}
/**
 * Which of three tones is the quietest: one is in antiphase, and quiet over loudspeakers alone.
 */
export interface Headphones {
  /**
   * @minItems 3
   * @maxItems 3
   */
  clips: Slot[];
  id: string;
  kind: "headphones";
  progress: number;
  question: string;
  teaching: boolean;
}
/**
 * A listener who comes: what the recruiting site said of them, kept as it is.
 *
 * token: of the page's own making, 256 random bits. Sent again after a lost reply, it leads to the same
 * session and not to a second seat. Without one the server makes one.
 */
export interface Join {
  arrived_with?: {
    [k: string]: string;
  };
  token?: string | null;
}
/**
 * The token that brings a listener back to the same session, and where it stands.
 */
export interface Joined {
  screen:
    | Consent
    | Notice
    | Volume
    | Headphones
    | AttentionScreen
    | Naming
    | Abx
    | SameDifferent
    | Mushra
    | Preference
    | Closer
    | Questionnaire
    | Done;
  title: string;
  token: string;
}
/**
 * Something to read: instructions, or a break.
 */
export interface Notice {
  id: string;
  kind: "notice";
  progress: number;
  rest_seconds: number;
  text: string;
  title: string;
}
/**
 * Set the volume by a clip that plays in a loop.
 */
export interface Volume {
  clip: Slot;
  id: string;
  kind: "volume";
  progress: number;
  text: string;
}
/**
 * Part 1 of Vadillo and Santana's experiment: name the command and say how natural the clip sounds.
 *
 * scale: the wording of 1 to 5, in that order.
 */
export interface Naming {
  /**
   * @minItems 2
   * @maxItems 40
   */
  choices: string[];
  clip: Slot;
  id: string;
  kind: "naming";
  progress: number;
  question: string;
  /**
   * @minItems 5
   * @maxItems 5
   */
  scale: string[];
  scale_question: string;
  teaching: boolean;
}
/**
 * Two clips after each other: the same recording or not.
 */
export interface SameDifferent {
  first: Slot;
  gap_seconds: number;
  id: string;
  kind: "same-different";
  progress: number;
  question: string;
  second: Slot;
  teaching: boolean;
}
/**
 * Clips to rate from 0 to 100 beside an open reference (ITU-R BS.1534).
 */
export interface Mushra {
  /**
   * @minItems 2
   * @maxItems 15
   */
  clips: Slot[];
  id: string;
  kind: "mushra";
  progress: number;
  question: string;
  reference: Slot;
  teaching: boolean;
}
/**
 * Which of two clips is better; a reference where the study has one.
 */
export interface Preference {
  a: Slot;
  b: Slot;
  id: string;
  kind: "preference";
  progress: number;
  question: string;
  reference: Slot | null;
  teaching: boolean;
}
export interface Questionnaire {
  id: string;
  kind: "questionnaire";
  progress: number;
  /**
   * @minItems 1
   * @maxItems 40
   */
  questions: Question[];
  title: string;
}
export interface Question {
  choices: string[];
  kind: "text" | "number" | "choice";
  name: string;
  required: boolean;
  text: string;
}
/**
 * What comes next, after what was just answered.
 */
export interface Next {
  feedback: Feedback | null;
  screen:
    | Consent
    | Notice
    | Volume
    | Headphones
    | AttentionScreen
    | Naming
    | Abx
    | SameDifferent
    | Mushra
    | Preference
    | Closer
    | Questionnaire
    | Done;
}
/**
 * Why a request was refused: one sentence. code: for the page, which retries some of them.
 */
export interface Problem {
  code: string;
  detail: JsonValue;
}
/**
 * Where a session stands, and what the study is called, for a page that comes back to it.
 */
export interface Standing {
  feedback: Feedback | null;
  screen:
    | Consent
    | Notice
    | Volume
    | Headphones
    | AttentionScreen
    | Naming
    | Abx
    | SameDifferent
    | Mushra
    | Preference
    | Closer
    | Questionnaire
    | Done;
  title: string;
}
