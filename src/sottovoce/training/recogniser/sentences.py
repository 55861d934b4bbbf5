"""English sentences that nobody wrote: common words put into simple frames, for synthetic voices to read.

They teach a recogniser the letters and the sound of everyday words. Letters are lower case, and the only mark
is the apostrophe.
"""

from __future__ import annotations

import re

import numpy as np

COMMANDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go", "one", "two", "three")

WORDS = {
    "thing": """
account address airport alarm animal answer apple arm army art baby back bag ball band bank bar basket
bath beach bean bear bed bell belt bike bill bird board boat body bone book boot bottle bowl box boy
branch bread bridge brush bucket building bus bush butter button cable cake camera camp candle captain car
card carpet castle cat ceiling cell chain chair channel chart cheese chicken child church circle city
class clock closet cloth cloud coast coat code coffee coin company computer cook cookie copy corner cotton
couch country cousin cover cow cream crowd cup curtain dance danger daughter day desk dinner dish doctor
dog dollar door dream dress drink driver drum duck ear earth egg engine engineer evening event eye face
factory family fan farm farmer father feather fence field film finger fire fish flag floor flower food
foot forest fork fox frame friend frog fruit game garage garden gate gift girl glass glove goal goat gold
grass group guard guest guitar hair hall hammer hand handle hat head heart heater hill hole home horse
hospital hotel hour house husband ice idea island jacket jar job joke journey judge juice key kid king
kitchen knee knife ladder lady lake lamp language laptop law lawyer leaf leg lemon lesson letter library
light line lion list lock lunch machine magazine map market match meal meat medicine meeting memory menu
message metal microphone milk mind minute mirror money month moon morning mother motor mountain mouse
mouth movie museum music nail name neck needle neighbor nest newspaper night noise nose notebook number
nurse ocean office oil onion orange oven owner page paint painter pair pan paper parent park party path
pen pencil people pepper person phone photo piano picture piece pig pillow pilot pipe place plan plane
planet plant plate player pocket poem poet police pool potato pot present price printer prize problem
project purse puzzle question queen rabbit radio rain record restaurant rice ring river road robot rock
roof room root rope rose rule sailor salad salt sand sandwich scale school science scissors screen sea
season seat secret seed sentence sheep shelf ship shirt shoe shop shoulder shower sign silver singer
sister size skin skirt sky smile smoke snake snow soap sock soldier son song sound soup space speaker
spoon spring square stamp star station stick stomach stone store storm story stove stranger street string
student subject sugar suit sun sweater switch table tail tape taxi tea teacher team telephone television
temperature tent test thing throat ticket tiger timer title tomato tongue tool tooth towel tower town toy
track train tree trick trip truck tube uncle valley vegetable village visitor voice volume wall watch
water wave weather web week wheel wife wind window wing winner winter wire wolf woman wood word work
worker world writer yard year zoo
""",
    "quality": """
able afraid alone angry bad beautiful best better big bitter black blue brave bright broken brown busy
calm careful cheap clean clear clever cold comfortable common cool correct crazy dangerous dark dead deep
different difficult dirty dry early easy empty equal excellent exciting expensive extra fair famous fast
fat final fine first flat foreign free fresh friendly full funny gentle good gray great green happy hard
healthy heavy high honest hot huge hungry important interesting kind large last late lazy little lonely
long loose loud low lucky main modern narrow natural near new nice noisy normal old open orange ordinary
perfect pink plain pleasant polite poor popular possible pretty private proud public pure purple quick
quiet ready real red rich right rough round sad safe second serious several sharp short sick silent simple
single slow small smart smooth soft special square strange strong sudden sweet tall terrible thick thin
third thirsty tight tiny tired true ugly unusual useful usual violet warm weak wet white whole wide wild
wise wonderful wrong yellow young
""",
    "do": """
accept add admire agree allow arrange ask avoid bake beat begin believe bend bite blow boil borrow bring
build burn buy call carry catch change check choose climb close collect compare complete consider control
cook count cover cross cut decide deliver describe destroy discover divide draw drive drop eat enjoy
examine explain explore feed feel fetch fight fill find finish fix follow forget forgive gather get give
grab grow guess hang hate hear help hide hit hold hurt imagine improve invite join jump keep kick kill
kiss know laugh lead learn leave lend lift like listen lock lose love make measure meet mention miss mix
move name need notice obey offer open order own pack paint pass pay pick plan plant play point polish
practice prefer prepare print produce promise protect prove pull push put reach read receive remember
remove rent repair repeat return ride ring rob save see sell send serve shake share shout show shut sing
smell solve spend spread stay steal study taste teach tell test thank think throw touch train trust try
turn use visit wait want warn wash waste watch wear weigh win wish wonder write
""",
    "who": """
adam alice amy andrew anna ben bob carol charles chris daniel david diana edward emily emma eric frank
fred george grace hannah harry helen henry jack jacob james jane jason jennifer jim joan joe john joseph
karen kate kevin laura linda lisa louis lucy maria mark martin mary max michael mike nancy nick oliver
oscar patrick paul peter philip rachel richard robert ruth sally sam sarah simon sophie stephen steve
susan ted thomas tim tom victor walter william zoe mom dad grandma grandpa
""",
    "when": """
today tomorrow yesterday tonight now later soon always never often sometimes again already on_monday
on_tuesday on_wednesday on_thursday on_friday on_saturday on_sunday in_january in_february in_march
in_april in_may in_june in_july in_august in_september in_october in_november in_december at_night at_noon
at_midnight in_the_morning in_the_afternoon in_the_evening last_week next_year this_summer every_day
after_lunch before_dinner
""",
    "how": """
badly carefully clearly early easily exactly far fast happily hard late loudly nearly politely probably
quickly quietly really slowly softly suddenly together usually very well
""",
    "number": """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety
""",
    "digit": "zero one two three four five six seven eight nine",
    "where": """
above across after against along around at before behind below beside between beyond by down from in
inside into near of off on onto out outside over past through to toward under up with without
""",
    "small": """
a about all also although an and any anybody anything are as away be because been both but can could did
do does done each either else enough even ever every everybody everything except few for had has have he
her here him his how if i in is it its just less many may me might mine more most much must my myself
neither nobody nor not nothing of only or other our own perhaps quite rather same shall she should since
so some somebody something still such than that the their them then there these they this those though
until us was we were what when where whether which while who whole whom whose why will with within would
yet you your
""",
    "short": """
i'm you're he's she's it's we're they're i've you've we've i'll you'll he'll she'll we'll they'll i'd
you'd don't doesn't didn't can't couldn't won't wouldn't shouldn't isn't aren't wasn't weren't haven't
hasn't let's that's what's where's who's there's here's o'clock
""",
    "more": """
action activity actually advice adventure afternoon ago air almost amazing among amount ancient anger
angle apartment appear area article asked asleep attack attention aunt autumn awake balance balloon became
become bedroom began being belief beyond birthday blanket blind blood bomb border bottom bought brain
breakfast breath bring brother brought bubble burning business calendar called came capital carrot cause
celebrate center central certain chance character cheerful choice chocolate cities cleaning climate closer
coming common complain computer congress cost cotton cried crying culture dancing date death degree demand
design desire detail diamond died dinosaur direction discuss distance double doubt dozen dust eagle east
economy effect effort electric elephant elevator else empire enemy energy enjoyed entire error escape
evidence example excuse exercise expert eyes fail faith fallen falling familiar fashion fault fear feeling
fellow felt female fever fifth figure flight flying forever form formal fortune forward found foundation
fourth freedom fuel furniture future gasoline general gentleman giant given giving glad global goes going
gone government grandfather grandmother grateful ground growing guide habit half happened having health
heard heaven helicopter hello herself himself history hobby holiday hope hundred idea image income
industry insect instead interest interview iron issue itself jail jewel joy july jungle justice keeping
kept kingdom kitten knew knock knowledge known laughing leader least legal length level liberty library
life limit liquid listening living local looking lost loved machine made magic mail making male manager
manner material matter maybe meaning meant medal member method middle mile military million mission
mistake mixture modern moment monkey monster mouth moved moving muscle mystery nation nature neither nerve
network noticed object ocean official older opinion opposite orchestra order organ outside oxygen package
pain palace paragraph pardon partner passenger patient pattern peace period permission photograph physical
pleasure poison politics population position power president pressure principle prison process product
professor program progress promise property proposal protein pumpkin purpose quality quarter quiz railway
raise ran range rapid rather reading reason recipe region regular relation religion report request
research respect result reward rhythm rocket royal running rush sadness safety said sale sample sang
saving saw saying scene schedule seven shadow shape shelter shine shore sight signal similar since singing
sitting situation skill sleep sleeping smiling social society solid solution someone sorry soul source
south speak speech speed spent spirit sport spot standing started statement steel step stood stopped
strength stress structure struggle success such summer supper supply support sure surface surprise swim
swimming system talk talking task taught tax technology tension theater theory thirteen thought thousand
thread thunder tired toast together told tomorrow took topic total toward tradition traffic travel
treasure treat trouble tunnel twice type umbrella understand uniform union universe university upon
vacation value variety vehicle version victory view violin virus vision vote voyage waiting walk walking
war warm weapon wearing weight welcome went west whisper whistle wisdom without witness wooden worry worse
worth written yawn yesterday yoga youth zebra zero zone
""",
    "home": """
lights lamp heater fan radio television music alarm oven camera door window garage curtains volume timer
microphone printer computer phone speaker
""",
    "room": "kitchen bedroom bathroom garage garden hall office living_room dining_room basement attic",
}

FRAMES = """
the {quality} {thing} is {where} the {thing}
the {thing} and the {thing} are {quality}
{who} will {do} the {thing} {when}
{who} and {who} {do} the {quality} {thing}
did {who} {do} the {thing} {when}
i want to {do} a {quality} {thing}
we {do} the {thing} {number} times {when}
they {do} {how} because the {thing} is {quality}
please {do} the {thing} {how}
don't {do} the {thing} {where} the {thing}
{short} {quality} and {quality}
{short} not {quality} {when}
{short} {where} the {thing}
why did you {do} my {thing}
where is the {quality} {thing}
what is the {thing} of the {thing}
how often can {who} {do} the {thing}
can you {do} me a {thing}
there are {number} people in the {room}
her {thing} was {quality} but his {thing} was {quality}
{who} told me about the {quality} {thing}
it is {number} o'clock
it is {number} {number} {when}
the {thing} costs {number} dollars
turn the {home} {onoff}
turn {onoff} the {home} in the {room}
turn {updown} the {home}
switch {onoff} the {home}
open the {home}
close the {home}
set the {home} to {number}
set a timer for {number} minutes
call {who}
call {who} {when}
send a message to {who}
play the {quality} song {when}
play some music in the {room}
go to the {room} and turn {leftright}
turn {leftright} at the {thing}
stop the {home} {when}
what's the weather {when}
what time is it {when}
my number is {digit} {digit} {digit} {digit} {digit}
{digit} {digit} {digit} {digit}
{digit} {digit} {digit} {digit} {digit} {digit}
{command} {command}
{command} {command} {command}
{command} {command} {command} {command} {command}
{any} {any} {any}
{any} {any} {any} {any}
{any} {any} {any} {any} {any}
{any} {any} {any} {any} {any}
{any} {any} {any} {any} {any} {any}
{any} {any} {any} {any} {any} {any} {any}
{small} {any} {small} {any} {small}
{small} {do} {small} {quality} {thing} {where} {small} {thing}
{small} {small} {do} {where} {small} {quality} {thing}
{short} {do} {small} {thing} {how}
"""


def _lists() -> dict[str, list[str]]:
    lists = {name: sorted({word.replace("_", " ") for word in text.split()}) for name, text in WORDS.items()}
    lists["any"] = sorted({word for words in lists.values() for word in words})
    return lists | {
        "command": list(COMMANDS),
        "onoff": ["on", "off"],
        "updown": ["up", "down"],
        "leftright": ["left", "right"],
    }


LISTS = _lists()


def draw_sentence(random: np.random.Generator) -> str:
    """A frame with every gap filled by a word of its kind, all choices uniform."""
    frames = FRAMES.strip().splitlines()
    frame = frames[random.integers(len(frames))]

    def fill(gap: re.Match[str]) -> str:
        words = LISTS[gap[1]]
        return words[random.integers(len(words))]

    return re.sub(r"\{(\w+)\}", fill, frame)
